#!/usr/bin/env bash
# Makes an authority and certificates of it, for trying TLS out: scripts/dev-certs.sh DIR [NAME...]. In DIR there are then
# ca.pem, and NAME.pem with NAME-key.pem for planner, client and every NAME. A NAME is a worker's; ROLE:NAME (viewer,
# submitter, operator, worker) gives another role, host:NAME none: it is for what else listens, as etcd and proxies. Without any:
# worker:*, which may take any name. What is there already is kept, so that more can be added later. Certificates hold for 30
# days: they are for development.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case ${1:-} in "" | -h | --help) sed -n '2,6s/^# //p' "$0" && exit 0 ;; esac
directory=$1
shift
days=30
mkdir -p "$directory"
cd "$directory"
umask 077

# make NAME SUBJECT_ALTERNATIVE_NAMES
make() {
  local name=$1 names=$2
  if [[ -f $name.pem ]]; then return; fi
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$name-key.pem" -out "$name.csr" \
    -subj "/O=Stagewright development/CN=$name" 2>/dev/null
  openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days "$days" -out "$name.pem" \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n' "$names") \
    2>/dev/null
  rm "$name.csr"
  say "$directory/$name.pem: $names"
}

if [[ ! -f ca.pem ]]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca-key.pem -out ca.pem -days "$days" \
    -subj "/O=Stagewright development/CN=authority" 2>/dev/null
  say "$directory/ca.pem: the authority"
fi
here="DNS:localhost,DNS:$(hostname),IP:127.0.0.1,IP:::1"
make planner "$here,DNS:stagewright-planner,URI:stagewright://planner/planner"
make client "URI:stagewright://operator/$(id -un)"
if (($# == 0)); then make worker 'URI:stagewright://worker/*'; fi
for word in "$@"; do
  role=${word%%:*} name=${word#*:}
  if [[ $role == "$word" ]]; then role=worker; fi
  case $role in host | viewer | submitter | operator | worker) ;; *) die "$word: there is no role $role" ;; esac
  if [[ ! $name =~ ^[A-Za-z0-9._-]+$ ]]; then die "$word: a name has letters, digits, dots, dashes and underscores"; fi
  if [[ $role == host ]]; then make "$name" "$here,DNS:$name"; else make "$name" "URI:stagewright://$role/$name"; fi
done
