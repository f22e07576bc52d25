"""Templates of source code in three languages, with the holes Thing, thing, field_a, field_b, VERB, N1 and N2."""

from __future__ import annotations

from typing import Final

PYTHON_HEAD: Final = '''"""Thing rules: what may be changed, by whom, and what it costs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from harbour.clock import Clock
from harbour.errors import Conflict, NotAllowed, NotFound
from harbour.store import Page, Store, Transaction

log = logging.getLogger("harbour.thing")

MAX_FIELD_A = N1
GRACE = timedelta(minutes=N2)


@dataclass(frozen=True)
class Thing:
    """One thing as it is stored."""

    id: str
    depot: str
    status: str
    field_a: Decimal
    field_b: Decimal
    changed_at: datetime


class ThingService:
    """Every change to a thing goes through here."""

    def __init__(self, store: Store[Thing], clock: Clock) -> None:
        self.store = store
        self.clock = clock
'''

PYTHON: Final = (
    '''
    def VERB_field_a(self, thing_id: str, amount: Decimal, *, by: str) -> Thing:
        """VERB the field_a of a thing and keep who did it."""
        with self.store.transaction() as step:
            thing = step.get(thing_id)
            if thing is None:
                raise NotFound(f"no thing {thing_id}")
            if thing.status in ("closed", "voided"):
                raise Conflict(f"thing {thing_id} is {thing.status}")
            limit = min(MAX_FIELD_A, thing.field_b * N1)
            if amount > limit:
                log.warning("field_a of %s would exceed %s", thing_id, limit)
                raise NotAllowed(f"field_a may be at most {limit}")
            changed = replace(thing, field_a=amount, changed_at=self.clock.now())
            step.put(changed)
            step.note("VERB_field_a", by=by, before=thing.field_a, after=amount)
        return changed
''',
    '''
    def VERB_by_field_b(self, depot: str, *, least: int = N1, limit: int = N2) -> Page[Thing]:
        """Return the things of a depot whose field_b is at least so much."""
        rows = self.store.query(
            "depot = :depot and field_b >= :least",
            order=("field_b desc", "changed_at desc", "id"),
            values={"depot": depot, "least": least},
        )
        page = Page.of(rows, limit=limit + 1)
        if len(page.items) > limit:
            page = page.cut(limit, after=page.items[limit - 1].id)
        return page
''',
    '''
    def VERB_stale(self, now: datetime | None = None) -> int:
        """Release what nobody touched for longer than the grace period."""
        now = now or self.clock.now()
        released = 0
        for thing in self.store.each(status="held"):
            idle = now - thing.changed_at
            if idle < GRACE:
                continue
            if thing.field_a and idle < GRACE * 2:
                log.debug("thing %s is idle but holds field_a %s", thing.id, thing.field_a)
                continue
            with self.store.transaction() as step:
                current = step.get(thing.id)
                if current is None or current.changed_at != thing.changed_at:
                    continue
                step.put(replace(current, status="open", changed_at=now))
            released += 1
        return released
''',
    '''
    def VERB_cost(self, things: Iterable[Thing], *, rate: Decimal = Decimal("0.N1")) -> Decimal:
        """Return what the things cost together, rounded once at the end."""
        total = Decimal(0)
        for thing in things:
            base = thing.field_a * rate
            surcharge = Decimal(0)
            if thing.field_b > N2:
                surcharge = (thing.field_b - N2) * rate / 2
            elif thing.status == "express":
                surcharge = base / 4
            total += base + surcharge
        return total.quantize(Decimal("0.01"))
''',
    '''
    def _VERB_rows(self, step: Transaction[Thing], ids: list[str]) -> list[Thing]:
        """Fetch in the order asked for; what is missing is an error, not a gap."""
        found = {thing.id: thing for thing in step.get_many(ids)}
        missing = [each for each in ids if each not in found]
        if missing:
            raise NotFound(f"{len(missing)} of {len(ids)} things are gone, first {missing[0]}")
        ordered = [found[each] for each in ids]
        if any(thing.field_b < 0 for thing in ordered):
            raise Conflict("field_b below zero: run the repair job first")
        return ordered
''',
)

TESTS_HEAD: Final = '''"""How things behave: the rules of field_a and field_b, at the edges."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from harbour.errors import Conflict, NotAllowed, NotFound
from harbour.thing import GRACE, MAX_FIELD_A, ThingService
from tests.fakes import FixedClock, MemoryStore, a_thing


@pytest.fixture
def service() -> ThingService:
    return ThingService(MemoryStore([a_thing(id="t-1", field_a=N1), a_thing(id="t-2", field_b=N2)]), FixedClock())
'''

TESTS: Final = (
    """

@pytest.mark.parametrize("amount", [Decimal(0), Decimal(N1), Decimal("N2.50")])
def test_VERB_field_a_keeps_who_did_it(service: ThingService, amount: Decimal) -> None:
    changed = service.VERB_field_a("t-1", amount, by="noor")
    assert changed.field_a == amount
    assert service.store.notes[-1].by == "noor"
    assert service.store.notes[-1].after == amount
""",
    """

def test_VERB_field_a_refuses_what_is_above_the_limit(service: ThingService) -> None:
    with pytest.raises(NotAllowed, match="at most"):
        service.VERB_field_a("t-2", Decimal(MAX_FIELD_A + N1), by="noor")
    assert service.store.get("t-2").field_a != MAX_FIELD_A + N1
""",
    """

def test_VERB_stale_leaves_what_was_touched_meanwhile(service: ThingService) -> None:
    late = service.clock.now() + GRACE * 2 + timedelta(seconds=N1)
    service.store.before_commit(lambda step: step.touch("t-1", at=late))
    assert service.VERB_stale(late) == 1
    assert service.store.get("t-1").status == "held"
""",
)

GO_HEAD: Final = """package thing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"harbour/gateway/internal/auth"
	"harbour/gateway/internal/upstream"
)

const (
	maxBody     = N1 << 10
	waitForRoom = N2 * time.Millisecond
)

// ErrFull says that no more things are taken in right now.
var ErrFull = errors.New("thing queue is full")

// Handler answers requests about things.
type Handler struct {
	upstream *upstream.Client
	queue    chan Thing
	log      *slog.Logger
}
"""

GO: Final = (
    """
// VERBThing takes a thing in and waits for room in the queue.
func (h *Handler) VERBThing(ctx context.Context, t Thing) error {
	timer := time.NewTimer(waitForRoom)
	defer timer.Stop()
	select {
	case h.queue <- t:
		h.log.Debug("thing queued", "id", t.ID, "fieldA", t.FieldA)
		return nil
	case <-timer.C:
		return fmt.Errorf("VERB %s: %w", t.ID, ErrFull)
	case <-ctx.Done():
		return ctx.Err()
	}
}
""",
    """
func (h *Handler) serveVERBFieldB(w http.ResponseWriter, r *http.Request) {
	who, ok := auth.From(r.Context())
	if !ok {
		http.Error(w, "sign in first", http.StatusUnauthorized)
		return
	}
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || limit < 1 || limit > N1 {
		limit = N2
	}
	page, err := h.upstream.ThingsByFieldB(r.Context(), who.Depot, limit)
	if err != nil {
		h.log.Error("upstream failed", "err", err, "depot", who.Depot)
		http.Error(w, "try again", http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(page); err != nil {
		h.log.Warn("client went away", "err", err)
	}
}
""",
    """
// VERBRetry asks again until the answer is final or patience ends.
func VERBRetry(ctx context.Context, ask func(context.Context) (Thing, error)) (Thing, error) {
	var last error
	for try := 0; try < 5; try++ {
		found, err := ask(ctx)
		if err == nil {
			return found, nil
		}
		last = err
		if !upstream.Temporary(err) {
			break
		}
		pause := time.Duration(1<<try) * N2 * time.Millisecond
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return Thing{}, errors.Join(last, ctx.Err())
		}
	}
	return Thing{}, fmt.Errorf("VERB thing: %w", last)
}
""",
)

TYPESCRIPT_HEAD: Final = """import { useEffect, useMemo, useState } from "react";
import { api, type Page, type Problem } from "../api";
import { formatAmount, formatDay } from "../format";
import { useDepot } from "../depot";

export interface Thing {
  id: string;
  status: "open" | "held" | "closed";
  fieldA: number;
  fieldB: number;
  changedAt: string;
}

const PAGE_SIZE = N1;
const POLL_MS = N2_000;
"""

TYPESCRIPT: Final = (
    """
export function useVERBThings(least = N1): { page?: Page<Thing>; problem?: Problem; reload: () => void } {
  const depot = useDepot();
  const [page, setPage] = useState<Page<Thing>>();
  const [problem, setProblem] = useState<Problem>();
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    api
      .get<Page<Thing>>("/things", { depot, least, limit: PAGE_SIZE, signal: stop.signal })
      .then(setPage)
      .catch((error: Problem) => {
        if (!stop.signal.aborted) setProblem(error);
      });
    return () => stop.abort();
  }, [depot, least, round]);
  return { page, problem, reload: () => setRound((n) => n + 1) };
}
""",
    """
export function VERBThingTable({ things, onPick }: { things: Thing[]; onPick: (id: string) => void }) {
  const ordered = useMemo(
    () => [...things].sort((a, b) => b.fieldB - a.fieldB || a.id.localeCompare(b.id)).slice(0, N1),
    [things],
  );
  if (ordered.length === 0) return <p className="empty">No things here yet.</p>;
  return (
    <table className="things">
      <tbody>
        {ordered.map((thing) => (
          <tr key={thing.id} onClick={() => onPick(thing.id)} data-status={thing.status}>
            <td>{thing.id}</td>
            <td className="amount">{formatAmount(thing.fieldA)}</td>
            <td className="amount">{formatAmount(thing.fieldB)}</td>
            <td>{formatDay(thing.changedAt)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
""",
    """
export function VERBFieldA(things: Thing[], limit = N2): number {
  let total = 0;
  for (const thing of things) {
    if (thing.status === "closed") continue;
    total += Math.min(thing.fieldA, limit);
  }
  return Math.round(total * 100) / 100;
}
""",
)
