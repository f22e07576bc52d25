"""Words and expressions that say the same, by lines. Data, written by hand.

Words of one group of ``SAME`` stand for each other; an expression of ``PHRASES`` is the one word behind its sign.
A word belongs here only where no other sense of it is common in what people note down.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PHRASES", "SAME"]

SAME: Final = """
    use utilise utilize employ adopt rely leverage
    prefer like love enjoy favor fond keen preference favorite preferred inclined opt | run execute invoke launch
    start begin commence kickoff initiate | finish complete conclude end expire lapse expiry | stop halt cease
    create build produce generate | delete remove erase purge wipe | change modify alter edit amend adjust
    update refresh | fix repair solve resolve mend | check verify validate confirm inspect | show display
    send deliver dispatch | obtain fetch retrieve receive | find locate discover
    keep retain retention preserve store save persist | put place | give provide supply offer
    tell inform notify ping | explain describe clarify | write author compose | contact reach achieve attain accomplish
    help assist aid | need require necessitate obligatory compulsory | allow permit authorize welcome
    break crash fail failure | error exception
    bug defect issue problem ticket | own owner owned responsible accountable belong ownership lead responsibility
    manage oversee supervise handle | buy purchase acquire | move migrate relocate shift transfer migration
    replace substitute supersede | release ship rollout publish deploy deployment
    merge land | spec specification
    doc documentation document | database db datastore | repository repo codebase | config configuration configure
    directory folder dir | dependency package library lib | function method routine | application app
    server host machine box | environment env | development dev | production prod | staging stage preprod
    authentication auth login signin authenticate | administrator admin | password passphrase | credential secret
    parameter param argument | variable var | message msg | information info | customer consumer
    colleague coworker teammate | manager boss supervisor | team squad crew group | company firm | employee staff
    engineer developer programmer coder | meeting call sync | deadline cutoff | goal objective target aim
    plan intend schedule | reason rationale motive | answer reply response respond
    summary overview recap summarize | comment remark | image picture photo screenshot | page screen
    dashboard board panel | chat conversation | link url address | website site | metric measurement stat
    chart graph plot | alert alarm alerting | incident outage downtime | latency delay lag
    fast quick rapid speedy swift
    slow sluggish | big large huge sizable | small little tiny | short brief concise terse succinct compact
    long verbose wordy | detailed thorough comprehensive extensive elaborate | simple easy straightforward
    hard difficult tough | crucial critical vital essential | old legacy outdated | wrong incorrect mistaken
    limit cap ceiling maximum max at_most | minimum min | count number amount quantity | price cost
    certificate cert | occur happen | until till | trigger fire | wait pause
    retry reattempt | format reformat formatter | lint linter | rollback revert undo | backup snapshot
    restore recover | monitor watch observe | track tracker tracking | yearly annual annually
    holiday vacation pto | job role occupation | doctor physician | car automobile | home house | phone telephone
    email mail | laptop notebook | beginner novice newcomer newbie inexperienced
    expert specialist veteran experienced seasoned skilled proficient | know understand familiar knowledge
    learn study | think believe | agree consent | decide determine settle decision
    suggest propose recommend advise | discuss debate | announce declare | freeze lock | optional voluntary
    example sample instance | template boilerplate | blank empty | enough sufficient adequate
    often frequently regularly | immediately instantly promptly straightaway | pipeline workflow | container pod
    endpoint route | column field | identifier id | integer int | boolean bool | terminal console shell
    editor ide | indent indentation | colortheme scheme | styleguide guideline | contract agreement
    compliance regulatory | security infosec | finance accounting | invoice bill | shipment delivery
    warehouse depot | supplier vendor | student pupil | teacher instructor | lesson class | hospital clinic
    medicine medication drug | dose dosage | hotel lodging accommodation | trip journey travel | vegetarian veggie
    allergy allergic | child kid | cache caching | scheduler cron crontab cronjob | threshold tolerance
    window timeframe period interval | cluster fleet | upgrade bump | feature functionality capability
    experiment trial pilot | intern trainee | recruit hire | salary wage | budget spend spending allowance
    purple violet | renew renewal | remind reminder | approve approval signoff | rotate rotation
    encrypt encryption | compress compression | validate validation | register registration enroll
    disable deactivate | enable activate | attach append add include | automatic automated automatically automate
    manual manually hand | conference | shut close | open reopen | visit attend | choose pick select
    reside live located situated housed sit lie found | listen exposed reachable bind bound served | connect talk
    previous prior former | error fault | worker | speak | quiet silent | strict rigorous | rarely seldom
    purpose intent | mistake slip | guard protect safeguard | allergic intolerant | quote cite | collect gather
    split divide | combine join | hide conceal | obsolete deprecated deprecate | request ask demand
    gate block prevent | cause | cheap inexpensive | expensive costly pricey | huge enormous | tool utility
    task chore todo | story | sprint iteration | retro retrospective | roadmap | onboard onboarding
    offboard offboarding | sandbox playground | diagram sketch drawing | spreadsheet sheet | partner affiliate
    basket cart
    compute calculate | estimate approximate | measure gauge quantify | analyze examine
    evaluate assess appraise | improve enhance boost | worsen deteriorate degrade | increase raise rise grow climb
    decrease lower reduce decline shrink | allocate assign | postpone defer | leave depart | attempt try
    ensure guarantee | maintain upkeep | forward relay | replicate mirror | desire crave | significant substantial
    strange weird odd | happy glad pleased | sad unhappy | sick ill unwell | rich wealthy | clever smart intelligent
    correct accurate | broken defective faulty | principal chief | extra additional | distinct different
    mother mom mum mommy | father dad daddy | grandma grandmother granny | grandpa grandfather
    lawyer attorney solicitor | film movie | nation country | airplane plane aircraft | bicycle bike | tv television
    fridge refrigerator | garbage trash rubbish | trousers pants | truck lorry | dinner supper | hobby pastime
    illness disease sickness | therapy treatment | professor prof | thesis dissertation | survey questionnaire
    participant respondent | researcher scientist | average mean | probability likelihood | annotator labeler
    headquarters hq | department dept | approximately roughly approx circa | reject decline turndown
    rent lease | birthday born birthdate | distinguish differentiate discern
    teach instruct | nickname alias | infant baby | quarrel argue | yell shout
    subway metro underground | motorway highway freeway | luggage baggage | purse handbag | diaper nappy
    zucchini courgette | eggplant aubergine | cilantro coriander | candy sweets | vet veterinarian
    exam examination | semester term | sofa couch | pharmacy drugstore
"""
PHRASES: Final = """
    pull request=pr | merge request=pr | pull requests=pr | merge requests=pr | prs=pr | continuous integration=ci
    ci/cd=ci | ci pipeline=ci | build server=ci | build pipeline=ci | code base=codebase | data base=database
    time zone=timezone | work flow=workflow | stand-up=standup | stand up meeting=standup
    stand-up meeting=standup | standup meeting=standup | daily standup=standup | daily stand-up=standup
    morning standup=standup | user interface=ui | command line=cli | command-line=cli | unit tests=unittest_kind
    unit test=unittest_kind | end-to-end=e2e | end to end=e2e | front end=frontend | front-end=frontend
    back end=backend | back-end=backend | web site=website | on call=oncall | on-call=oncall | kicks off=start
    kick off=start | kicked off=start | sets up=create | set up=create | rolls out=deploy | roll out=deploy
    rolled out=deploy | go live=deploy | goes live=deploy | going live=deploy | went live=deploy
    signs off=approve | sign off=approve | signed off=approve | sign-off=approve | looks after=own
    look after=own | takes care of=own | take care of=own | in charge of=own | responsible for=own
    belongs to=owned | is run by=owned | point person=owner | point of contact=owner | takes place=happen
    take place=happen | is held=happen | are held=happen | is due=due | gets rid of=remove | get rid of=remove
    roll back=rollback | rolled back=rollback | rolling back=rollback | big fan of=like | a fan of=like
    fond of=like | is into=like | keen on=like | instead of=instead_of | rather than=instead_of
    in place of=instead_of | as opposed to=instead_of | in favor of=replacing | in favour of=replacing
    have to=must | has to=must | had to=must | needs to=must | need to=must | no longer=no_longer
    not any more=no_longer | not anymore=no_longer | as long as=if | as soon as=when | better than=over
    no longer than=at_most | not longer than=at_most | new to=beginner | their own=ownself | its own=ownself
    days long=days | hours long=hours | minutes long=minutes | weeks long=weeks | months long=months
    his own=ownself | her own=ownself | my own=ownself | our own=ownself | your own=ownself
    in order to=to | so that=so | due to=because | owing to=because | on account of=because | because of=because
    given that=because | as well as=and | at least=at_least | no less than=at_least | no fewer than=at_least
    minimum of=at_least | a minimum of=at_least | at most=at_most | no more than=at_most | up to=at_most
    a maximum of=at_most | maximum of=at_most | or more=at_least | or fewer=at_most | or less=at_most
    more than=more_than | over a=more_than_a | greater than=more_than | less than=less_than | fewer than=less_than
    every day=daily_each | each day=daily_each | once a day=daily_each | per day=daily_each | a day=daily_each
    every week=weekly | each week=weekly | once a week=weekly | per week=weekly | a week=weekly
    every month=monthly | each month=monthly | once a month=monthly | per month=monthly | a month=monthly
    every year=yearly | each year=yearly | once a year=yearly | per year=yearly | a year=yearly
    every hour=hourly | each hour=hourly | per hour=hourly | an hour=hourly | once an hour=hourly
    per minute=perminute | a minute=perminute | each minute=perminute | every minute=perminute
    per second=persecond | a second=persecond | each second=persecond | every quarter=quarterly
    each quarter=quarterly | every night=nightly | each night=nightly | half an hour=30 minutes | a couple of=2
    a dozen=12 | git hub=github | java script=javascript | type script=typescript | post gres=postgres
    postgresql=postgres | postgre sql=postgres | k8s=kubernetes | js=javascript | ts=typescript | py=python
    golang=go_lang | go language=go_lang | vs code=vscode | visual studio code=vscode | mongo db=mongodb
    mongo=mongodb | gh=github | gcp=google_cloud | google cloud platform=google_cloud | google cloud=google_cloud
    amazon web services=aws | psql=postgres | sql lite=sqlite | redhat=red_hat | mac os=macos | os x=macos
    github action=github_actions | gha=github_actions | github workflows=github_actions
    github actions=github_actions | use case=usecase | run book=runbook | play book=playbook
    post mortem=postmortem | post-mortem=postmortem | road map=roadmap | dead line=deadline
    white space=whitespace | file name=filename | user name=username | pass word=password | time out=timeout
    times out=timeout | timed out=timeout | timing out=timeout | log in=login | sign in=login | signing in=login
    logging in=login | opt for=prefer | work week=workweek | back up=backup | backed up=backup | check in=commit
    checked in=commit | out of date=outdated | out-of-date=outdated | up to date=current | up-to-date=current
    team mate=teammate | team mates=teammate | co-worker=coworker | co-workers=coworker
    feature flag=feature_flag | feature flags=feature_flag | feature toggle=feature_flag
    feature toggles=feature_flag | style guide=styleguide | error message=error | error messages=error
    issue tracker=tracker | bug tracker=tracker | ticket system=tracker | ticketing system=tracker
    ticket tracker=tracker | bug board=tracker | issue board=tracker | quality assurance=qa
    key bindings=keybinding | key binding=keybinding | keybindings=keybinding | keyboard shortcuts=keybinding
    short cut=shortcut | rate limit=rate_limit | rate limits=rate_limit | rate-limit=rate_limit
    rate limited=rate_limit | rate limiting=rate_limit | rate-limited=rate_limit | throttled=rate_limit
    throttle=rate_limit | throttles=rate_limit | throttling=rate_limit | request quota=rate_limit
    data centre=datacenter | data center=datacenter | public holiday=holiday | human resources=hr
    machine learning=ml | artificial intelligence=ai | pull-request=pr | read only=readonly | read-only=readonly
    hard coded=hardcoded | hard-coded=hardcoded | open source=opensource | open-source=opensource
    real time=realtime | real-time=realtime | sub folder=subfolder | trade off=tradeoff | step by step=stepwise
    step-by-step=stepwise | bullet points=bullet | bullet point=bullet | bullet lists=bullet | on-site=onsite
    on site=onsite | unavailable=not available | unable=not able | leave out=without | leaves out=without
    leaving out=without | left out=without | omit=without | omits=without | omitting=without | w/o=without
    free of=without | free from=without | off limits=forbidden | switch off=disable | switched off=disable
    turn off=disable | turned off=disable | turns off=disable | switch on=enable | switched on=enable
    turn on=enable | turned on=enable | turns on=enable | off-limits=forbidden | not an option=forbidden
    out of the question=forbidden | no-go=forbidden | not ok=forbidden | not okay=forbidden
    not acceptable=forbidden | unacceptable=forbidden | by hand=manually | hands-on=manual | at all times=always
    under no circumstances=never | at no point=never | plain english=plain_english | to the point=short
    how long=that | kept short=short | keep short=short | prior to=before | first before=before | subsequent to=after
    twice=2 times | thrice=3 times | a single=1
    approximately=about | approx=about | roughly=about | circa=about | consists of=have | consist of=have
    is made up of=have | made up of=have | is composed of=have | comprises=have | comprise=have | is able to=can
    are able to=can | is supposed to=should | are supposed to=should | ought to=should | is required to=must
    are required to=must | is obliged to=must | is allowed to=may | are allowed to=may | is permitted to=may
    are permitted to=may | would like=want | would rather=prefer | make sure=ensure | makes sure=ensure
    takes part in=attend | take part in=attend | carry out=run | carries out=run | carried out=run
    deals with=handle | deal with=handle | make use of=use | makes use of=use | puts off=postpone | put off=postpone
    calls off=cancel | call off=cancel | called off=cancel | goes up=increase | go up=increase | went up=increase
    goes down=decrease | go down=decrease | went down=decrease | runs out of=lack | run out of=lack
    ran out of=lack | runs out=end | run out=end | ran out=end | shuts down=shutdown | shut down=shutdown
    shutting down=shutdown | apart from=except | aside from=except | other than=except | in addition to=and
    along with=and | together with=and | every other week=biweekly | every second week=biweekly
    every 2 weeks=biweekly | every two weeks=biweekly | every fortnight=biweekly | fortnightly=biweekly
    every other day=alternate_days | every second day=alternate_days | every 2 days=alternate_days
    every two days=alternate_days | on a daily basis=daily_each | on a weekly basis=weekly
    on a monthly basis=monthly | on a regular basis=regularly | daily=daily_each | per annum=yearly
    as soon as possible=immediately | asap=immediately | right away=immediately | at once=immediately
    data set=dataset | data sets=datasets | neural net=neural_network | neural nets=neural_network
    neural network=neural_network | neural networks=neural_network | high school=high_school
    phone number=phone_number | telephone number=phone_number | mobile phone=cellphone | cell phone=cellphone
    e-mail=email | e-mails=email | wi-fi=wifi | world wide web=web | host name=hostname | w/=with
    in the course of=during | in case of=if | in the event of=if | provided that=if | at the moment=currently
    for the time being=currently | at present=currently | as a rule=usually | most of the time=usually
    from time to time=occasionally | once in a while=occasionally | now and then=occasionally | for example=eg
    for instance=eg | with respect to=about | with regard to=about | in terms of=about | when it comes to=for
    on behalf of=for | by means of=via | with the help of=via | except for=except | as of now=currently
    up until=until | get in touch with=contact | gets in touch with=contact | reach out to=contact
    keep track of=track | keeps track of=track | keep an eye on=monitor | keeps an eye on=monitor
"""
