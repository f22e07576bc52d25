"""Words of one kin: a question asks for a pet, what was said is that the dog is ill.

A small table of everyday English and of the words of software, written by hand: each line a family of words that stand
for one another, or a kind and its most common members. It widens a question a little and never narrows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .stems import stem

__all__ = ["kin_of"]

_FAMILIES: Final = """
    family relatives: mother mom father dad parents son daughter kids children husband wife brother sister grandma
        grandpa grandmother grandfather aunt uncle cousin siblings spouse
    partner spouse: husband wife girlfriend boyfriend fiance fiancee
    pet animal: dog cat puppy kitten horse bird fish hamster rabbit turtle
    hobby pastime interest leisure: painting reading gardening photography hiking cooking knitting gaming dancing
        fishing drawing pottery writing
    sport exercise workout fitness: running swimming yoga gym tennis football soccer basketball cycling training
        climbing skiing surfing boxing
    outdoors nature: hike camping mountain beach forest park trail lake
    food meal dish eat cuisine: dinner lunch breakfast recipe cook bake snack dessert restaurant pizza salad soup
    drink beverage: coffee tea wine beer juice
    music instrument: guitar piano violin drums song sing band concert album
    art artwork creative: painting drawing sculpture pottery sketch canvas gallery
    book novel literature author: read series story fantasy library
    movie film show cinema: watch series actor director theater
    game gaming: play console board puzzle tournament
    travel trip journey vacation holiday tour: visit flight abroad hotel road
    place location city town country: visit live move
    vehicle car: truck motorcycle bike drive van
    home house apartment: live move rent roommate
    job work career profession occupation employment: hire boss office colleague company promotion interview business
    school education study degree: college university class course student graduate teacher exam learn
    health medical illness sickness condition disease ailment: doctor hospital sick diagnosis pain surgery medicine
        therapy checkup
    injury hurt accident: broken sprain wound pain ankle knee
    feeling emotion mood: happy sad proud excited nervous anxious grateful scared
    stress anxiety: relax calm pressure overwhelm destress unwind
    goal plan dream aspiration ambition: hope want achieve aim
    event activity celebration: party wedding festival birthday anniversary parade ceremony fair
    charity volunteer donate community: shelter fundraiser help cause
    money finance financial: pay cost budget salary buy afford debt
    gift present: buy birthday surprise
    clothes clothing outfit: dress shirt shoes wear
    weather climate: rain snow sun storm
    religion faith spiritual: church pray god
    friend friendship: buddy pal mate
    award prize achievement accomplishment: win trophy medal
    problem issue trouble difficulty challenge obstacle setback
    bug defect error fault failure crash exception
    delete remove erase drop
    create add make new
    change modify update edit alter
    fix repair solve resolve
    begin start
    stop end finish quit
    purchase buy acquire
    picture photo image photograph
    kid child
    big large huge
    small little tiny
    important significant meaningful
    like love enjoy favorite prefer
    test testing: pytest unittest fixture mock assertion coverage
    deploy deployment release ship rollout publish
    login authentication auth signin: password token session credential
    database db: sql postgres mysql sqlite table schema migration query
    config configuration settings: option env flag
    docs documentation: readme manual guide
    repo repository
    dependency package library: install version upgrade pip npm
    directory folder
    performance speed latency: slow fast benchmark optimize
    deadline due: date until
"""


def _table() -> dict[str, tuple[str, ...]]:
    """Return for each word those of its families, by stem; what stands after the colon stands for the kinds only."""
    found: dict[str, dict[str, None]] = {}
    lines: list[str] = []
    for line in _FAMILIES.splitlines():
        if line.startswith("        "):
            lines[-1] += line
        elif line.strip():
            lines.append(line)
    for line in lines:
        kinds, _, members = line.partition(":")
        heads = [stem(word) for word in kinds.split()]
        for head in heads:
            found.setdefault(head, {}).update(dict.fromkeys([*heads, *map(stem, members.split())]))
    return {word: tuple(one for one in others if one != word) for word, others in found.items()}


_KIN: Final = _table()


def kin_of(words: Iterable[str]) -> list[str]:
    """Return the words, each as its stem, that are of one kin with some words and are not among them."""
    given = list(words)
    return [one for one in dict.fromkeys(one for word in given for one in _KIN.get(word, ())) if one not in given]
