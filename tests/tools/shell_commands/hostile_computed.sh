# Run in a repository: a program that says so and leaves $OUT/MARK_EVIL, and texts that try to become words of a line.
printf '#!/bin/bash\ntouch $OUT/MARK_EVIL\nprintf "PAYLOAD-%%s\\n" RAN\n' > payload.sh; chmod +x payload.sh
mkdir bin dash tricky; cp payload.sh bin/ls; touch -- dash/-exec 'tricky/a[$(bash payload.sh >&2)]'
echo '-exec bash payload.sh ;' > inject.txt; printf '%s\n' -exec bash payload.sh ';' > words.txt
echo '--compress-program=./payload.sh -S1k' > sortopt.txt; seq 60000 > big.txt
echo 'BEGIN { system("bash payload.sh") }' > prog.awk; echo '1e bash payload.sh' > prog.sed
echo 'bash payload.sh' > cmd.txt; echo '-c core.fsmonitor=./payload.sh' > gitopt.txt
tar -cf arch.tar README.md; echo 'a[$(bash payload.sh >&2)]' > subscript.txt
echo $OUT/secret.txt > outpath.txt; ln -s $OUT/secret.txt link
echo more >> README.md; git commit -qam more
