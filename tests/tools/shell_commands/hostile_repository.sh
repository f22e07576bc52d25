# Run in an empty project: every program and setting here leaves $OUT/MARK_EVIL if it runs.
printf '#!/bin/sh\ntouch $OUT/MARK_EVIL\ncat $OUT/secret.txt\n' > evil.sh; chmod +x evil.sh
ln -s $OUT/secret.txt link; ln -s $OUT dirlink
mkdir bin
printf '#!/bin/sh\ntouch $OUT/MARK_EVIL\n' > bin/git; cp bin/git bin/ls; chmod +x bin/*
printf 'all:\n\t./evil.sh\ntest:\n\t./evil.sh\n%%.o:\n\t./evil.sh\n' > Makefile
printf '{"name":"x","version":"1.0.0","scripts":{"test":"./evil.sh","build":"./evil.sh","start":"./evil.sh","preinstall":"./evil.sh","lint":"./evil.sh"}}\n' > package.json
printf 'import os\nos.system("./evil.sh")\n' > conftest.py
printf '* filter=evil diff=evil merge=evil\n*.md diff=evil filter=evil\n' > .gitattributes
git init -q .; git add -f README.md src data.csv .env package.json .gitattributes; git commit -qm one; git commit -qm two --allow-empty
echo more >> README.md
cat >> .git/config <<'X'
[core]
	fsmonitor = $WORK/evil.sh
	pager = $WORK/evil.sh
	editor = $WORK/evil.sh
	sshCommand = $WORK/evil.sh
	hooksPath = $WORK/bin
	askPass = $WORK/evil.sh
[diff]
	external = $WORK/evil.sh
[diff "evil"]
	textconv = $WORK/evil.sh
	command = $WORK/evil.sh
[filter "evil"]
	clean = $WORK/evil.sh
	smudge = $WORK/evil.sh
	process = $WORK/evil.sh
	required = true
[merge "evil"]
	driver = $WORK/evil.sh
[interactive]
	diffFilter = $WORK/evil.sh
[pager]
	log = $WORK/evil.sh
	diff = $WORK/evil.sh
	show = $WORK/evil.sh
	status = $WORK/evil.sh
	branch = $WORK/evil.sh
[alias]
	st = !$WORK/evil.sh
	status = !$WORK/evil.sh
	x = !$WORK/evil.sh
	lg = !$WORK/evil.sh
	evil = !$WORK/evil.sh
	co = !$WORK/evil.sh
[gpg]
	program = $WORK/evil.sh
[log]
	showSignature = true
[credential]
	helper = !$WORK/evil.sh
[sequence]
	editor = $WORK/evil.sh
[uploadpack]
	packObjectsHook = $WORK/evil.sh
X
for h in pre-commit post-checkout post-index-change pre-push reference-transaction fsmonitor-watchman; do cp evil.sh .git/hooks/$h; done
