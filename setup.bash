# Enter the built environment: source setup.bash
# On a machine with a ROS 2 distribution, source that first.

_vdl_root=$(cd "$(dirname "${BASH_SOURCE[0]}")" > /dev/null && pwd)
if [ ! -f "$_vdl_root/install/local_setup.bash" ]; then
  echo "setup.bash: nothing is built yet: run make setup in $_vdl_root" >&2
  unset _vdl_root
  return 1
fi
export VIRTUAL_ENV="$_vdl_root/.venv"
case "$PATH:" in
  "$VIRTUAL_ENV/bin:"*) ;;  # before that of another checkout, if one was sourced
  *) export PATH="$VIRTUAL_ENV/bin:$PATH" ;;
esac
if [ -f "$VIRTUAL_ENV/stamps/section-ros" ]; then
  # ROS 2 from wheels: the virtual environment is the distribution.
  export ROS_DISTRO=jazzy ROS_VERSION=2 ROS_PYTHON_VERSION=3
  export AMENT_PREFIX_PATH="$VIRTUAL_ENV" CMAKE_PREFIX_PATH="$VIRTUAL_ENV"
  export _ROS_WHEELS_BOOTSTRAP_COMPLETE=1
  LD_LIBRARY_PATH=$(printf ':%s' "$VIRTUAL_ENV"/lib "$VIRTUAL_ENV"/lib/python3.*/site-packages/ros_*.libs)
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH#:}
  case $- in *i*) source "$_vdl_root/bootstrap/completion.bash" ;; esac
fi
source "$_vdl_root/install/local_setup.bash"
if [ -d "$VIRTUAL_ENV/lib" ] && [ ! -f "$VIRTUAL_ENV/stamps/section-ros" ]; then
  # The distribution's own python3 must find what the virtual environment adds.
  export PYTHONPATH="$(echo "$VIRTUAL_ENV"/lib/python3.*/site-packages):$PYTHONPATH"
fi
unset _vdl_root
