# shellcheck shell=bash
# Sourced by the scripts that people run: says each step with the time since the script began, and
# keeps long commands quiet while it shows that they still work.

# When the first of the scripts that call each other began.
export PROGRESS_BEGIN=${PROGRESS_BEGIN:-$EPOCHSECONDS}

# say TEXT...: one line on standard output, behind the seconds since the beginning.
say() {
  printf '[%4d s] %s\n' "$((EPOCHSECONDS - PROGRESS_BEGIN))" "$*"
}

# die TEXT...: the script's name and the reason on standard error, then exit status 1.
die() {
  printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
  exit 1
}

# quietly LOG TEXT COMMAND...: runs COMMAND with its output in the file LOG. Meanwhile it shows the
# elapsed seconds and the output's last line: in place on a terminal, else every 15 s. When COMMAND
# fails, the end of LOG is printed. Returns COMMAND's exit status.
quietly() {
  local log=$1 text=$2 ticker status=0
  shift 2
  say "$text"
  : >"$log"
  # The command stays in the foreground, so that Ctrl-C reaches it.
  _show_progress "$log" $$ &
  ticker=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  if [[ -t 1 ]]; then
    printf '\r\033[K'
  fi
  if ((status != 0)); then
    printf -- '--- end of %s:\n' "$log" >&2
    tail -n 40 -- "$log" >&2
    printf -- '--- "%s" failed with exit status %d\n' "$text" "$status" >&2
  fi
  return "$status"
}

_show_progress() {
  local log=$1 parent=$2 begin=$SECONDS every=15 before='         ' after='\n' last never
  if [[ -t 1 ]]; then
    every=1 before='\r\033[K         ' after=
  fi
  # Waits by a read that gets nothing: a `sleep` would live on after us, holding our descriptors.
  exec {never}<> <(:)
  while ! read -r -t "$every" -u "$never" && kill -0 "$parent" 2>/dev/null; do
    last=$(tail -c 400 -- "$log" | tr '\r' '\n' | tr -cd '[:print:]\n' | grep . | tail -n 1) || true
    # shellcheck disable=SC2059
    printf "$before%d s  %s$after" "$((SECONDS - begin))" "${last:0:70}"
  done
}
