# Completion of `ros2` in bash, for the stand-in: a distribution has its own. setup.bash sources it.
# It completes verbs, executables, launch files, and the arguments of both.

declare -gA _ros2_arguments  # by command, because asking for them takes seconds

_ros2_ask_arguments() {  # verb, package, executable or launch file
  local text
  case $1 in
    run) text=$(ros2 run "$2" "$3" --help 2> /dev/null < /dev/null)
      grep -oE -- '--[a-z][a-z0-9_-]*' <<< "$text"
      sed -nE '/^parameters:/,$ s/^  ([a-z]\w*)  .*/\1:=/p' <<< "$text" ;;
    launch) ros2 launch "$2" "$3" --show-args 2> /dev/null | sed -nE "s/^    '(\w+)':$/\1:=/p" ;;
  esac | sort --unique
}

_ros2_complete() {
  local verb=${COMP_WORDS[1]} package=${COMP_WORDS[2]} file=${COMP_WORDS[3]} words= prefix key
  case $COMP_CWORD in
    1) words='launch pkg run' ;;
    2) case $verb in
        launch | run) words=vdl_ros ;;
        pkg) words='executables list prefix' ;;
      esac ;;
    3) prefix=$(ros2 pkg prefix "$package" 2> /dev/null) || return
      case $verb in
        run) words=$(cd "$prefix/lib/$package" 2> /dev/null && ls) ;;
        launch) words=$(cd "$prefix/share/$package/launch" 2> /dev/null && ls) ;;
      esac ;;
    *) key="$verb $package $file"
      [ -n "${_ros2_arguments[$key]+known}" ] ||
        _ros2_arguments[$key]=$(_ros2_ask_arguments "$verb" "$package" "$file")
      words=${_ros2_arguments[$key]} ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}")
  # Its value follows the name of an argument.
  if [[ ${COMPREPLY-} == *:= ]]; then compopt -o nospace; fi
}
complete -o default -F _ros2_complete ros2
