#!/bin/bash
# Installs the Debian packages and the Python wheel in clean systems, as a Jetson's owner does, starts the programs
# there, and compiles and runs the examples in C, C++ and Python.
#
#   tools/check-deb-root.sh               what tools/package.sh and tools/python-wheel.sh wrote, for each architecture
#   SUITES="bookworm jammy" ARCHS=arm64 tools/check-deb-root.sh
#
# The systems: Ubuntu 22.04 (jammy, JetPack 6, glibc 2.35) and 24.04 (noble, JetPack 7, glibc 2.39); beside them
# Debian 12 (bookworm, glibc 2.36) and 13 (trixie, glibc 2.41), which stand for them where Ubuntu's archive
# cannot be reached. The output names what was skipped.
#
# Works on Debian and Ubuntu as root, and fetches debootstrap and, on machines other than aarch64,
# qemu-user-static. Kernel 6.7 or newer: aarch64 programs start through a binfmt_misc of a user namespace, so
# that nothing of this machine changes.
set -euo pipefail
cd "$(dirname "$0")/.."

# Inside the namespace: starts a command in the system below ROOT.
if [ "${1:-}" = --inside ]; then
    root=$2
    shift 2
    if [ "$(uname -m)" != aarch64 ] && [ "$arch" = arm64 ]; then
        mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
        # ELF, 64 bits, little-endian, machine 183. F: the emulator is opened now, outside the root.
        printf '%s' ':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' \
            ':\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff' \
            ":$(command -v qemu-aarch64-static):OCF" >/proc/sys/fs/binfmt_misc/register
    fi
    # debootstrap makes a link where it cannot mount.
    [ ! -L "$root/proc" ] || rm "$root/proc"
    mkdir -p "$root/proc" "$root/dev"
    mount --rbind /proc "$root/proc"
    for device in null zero full random urandom tty; do
        [ -e "$root/dev/$device" ] || : >"$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    # `container`: debootstrap is not to make device nodes, which a user namespace may not.
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive container=lxc "$@"
fi

# Starts a command in the system below a root, in namespaces of its own.
inside() {
    local go pid status=0
    go=$(mktemp -u)
    mkfifo "$go"
    unshare --user bash -c 'read -r <"$0"; exec unshare --mount --pid --fork --mount-proc "$@"' \
        "$go" "$PWD/tools/check-deb-root.sh" --inside "$@" &
    pid=$!
    until [ "$(readlink "/proc/$pid/ns/user")" != "$(readlink /proc/self/ns/user)" ]; do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    # All users of a system: dpkg gives files to several.
    echo '0 0 65536' >"/proc/$pid/gid_map"
    echo '0 0 65536' >"/proc/$pid/uid_map"
    echo >"$go"
    wait "$pid" || status=$?
    rm -f "$go"
    return $status
}

fail() {
    echo "check-deb-root: $*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "root alone can make a system"
needed=(debootstrap)
[ "$(uname -m)" = aarch64 ] || needed+=(qemu-user-static)
for tool in "${needed[@]}"; do
    dpkg -s "$tool" >/dev/null 2>&1 || apt-get install -qq -y --no-install-recommends "$tool" >/dev/null
done
# The keys of Ubuntu's archive. A machine that cannot have them skips Ubuntu below.
dpkg -s ubuntu-keyring >/dev/null 2>&1 || apt-get install -qq -y ubuntu-keyring >/dev/null 2>&1 || true

roots=$PWD/target/roots
mkdir -p "$roots"

# A minimal system of a distribution's release; status 1 when its archive cannot be reached.
system() {
    local suite=$1 root=$2 log=$2.log
    rm -rf "$root"
    case $suite in
    jammy | noble)
        # Without the keys debootstrap turns to another archive, and its message misleads.
        [ -f /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || {
            echo "E: no keys of Ubuntu's archive: the package ubuntu-keyring cannot be had here" >"$log"
            return 1
        }
        ;;
    esac
    timeout 600 debootstrap --arch="$arch" --foreign --variant=minbase "$suite" "$root" >"$log" 2>&1 || return 1
    inside "$root" timeout 1800 /debootstrap/debootstrap --second-stage >>"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        fail "$suite: the minimal system was not set up"
    }
}

# Fails with what the step printed.
broken() {
    cat "$said" >&2
    fail "$*"
}

# What an owner does with the package, with what each step must say.
owner() {
    local root=$1 file=root/toolkit.deb said=$1.out status=0 out
    inside "$root" apt-get install -y "./$file" >"$said" 2>&1 || broken "apt install ./$file fails"
    # A minimal system has all that the package depends on.
    grep -q '^0 upgraded, 1 newly installed, 0 to remove' "$said" || broken "other packages were installed too"
    grep -q 'nvdiag doctor' "$said" || fail "the installation does not say what to do next"
    out=$(inside "$root" dpkg --verify ga10b-toolkit)
    [ -z "$out" ] || fail "files differ from the package: $out"
    for page in nvdiag llm-demo; do
        [ -s "$root/usr/share/man/man1/$page.1.gz" ] || fail "no manual page of $page"
    done
    # A machine without a GPU has findings: status 1, and a text. Other statuses are crashes.
    inside "$root" nvdiag doctor >"$said" 2>&1 || status=$?
    [ "$status" -le 1 ] && grep -q nvgpu "$said" || broken "nvdiag doctor: status $status"
    # Steps of the raw client and the first kernel. Those of the language model are slow under emulation.
    for step in 2 4 9 12; do
        inside "$root" timeout 900 nvdiag bringup --device sim --only "$step" >"$said" 2>&1 ||
            broken "nvdiag bringup --only $step fails"
        grep -E "^ *$step +ok" "$said" || broken "step $step did not pass"
    done
    # The package has both programs, and one finds the other, which may be too slow for the step's deadline.
    inside "$root" timeout 900 nvdiag bringup --device sim --only 20 >"$said" 2>&1 || :
    grep -q 'a language model' "$said" || broken "nvdiag bringup --only 20"
    ! grep -q 'is not installed beside nvdiag' "$said" || fail "nvdiag does not find llm-demo"
    inside "$root" timeout 900 llm-demo --device sim -n 4 >"$said" 2>&1 || broken "llm-demo"
    grep -q 'Once upon a time' "$said" || broken "llm-demo has another text"
    inside "$root" env LD_PRELOAD=libnvgpu_sim.so nvdiag info --device nvgpu >"$said" 2>&1 ||
        broken "the software GPU below a program's system calls"
    # `env` contains no software GPU: the library is found, or the command fails.
    inside "$root" nvdiag check --checks memory -- env nvdiag info >"$said" 2>&1 || broken "nvdiag check"
    grep -q 'no launch was seen' "$said" || fail "nvdiag check does not say that nothing was launched"
}

# What a programmer does with the other package and with the wheel: every example, on the software GPU.
programmer() {
    local root=$1 said=$1.out source kernels=/usr/share/doc/ga10b-toolkit/examples/kernels
    inside "$root" sh -c 'apt-get update && apt-get install -y --no-install-recommends ./root/toolkit-dev.deb \
        gcc g++ libc6-dev pkg-config python3-venv python3-numpy' >"$said" 2>&1 || broken "the -dev package, compilers, Python"
    for source in "$root"/usr/share/doc/ga10b-toolkit/examples/0*.c*; do
        source=${source#"$root"}
        inside "$root" sh -ec '
            case $1 in
            *.c) compile="gcc -std=c11" ;;
            *) compile="g++ -std=c++17" ;;
            esac
            $compile -Wall -Wextra -Werror "$1" -o /tmp/example "-DKERNELS=\"$2\"" $(pkg-config --cflags --libs hcq)
            case $1 in
            # A benchmark: a second of it.
            *latency*) set -- 100 1 ;;
            *) set -- ;;
            esac
            HCQ_DEVICE=sim timeout 600 /tmp/example "$@"' sh "$source" "$kernels" >"$said" 2>&1 || broken "$source"
        echo "$(basename "$source"): $(tail -n 1 "$said")"
    done
    inside "$root" sh -ec 'python3 -m venv --system-site-packages /opt/hcq
        /opt/hcq/bin/pip install --no-index /root/hcq-*.whl' >"$said" 2>&1 || broken "the wheel"
    for source in "$root"/root/sources/hcq-py/examples/*.py; do
        inside "$root" sh -ec '
            case $1 in
            *loop.py) set -- "$1" --hz 100 --seconds 1 ;;
            esac
            HCQ_DEVICE=sim timeout 600 /opt/hcq/bin/python "$@"' sh "${source#"$root"}" >"$said" 2>&1 || broken "$source"
        echo "$(basename "$source"): $(tail -n 1 "$said")"
    done
    inside "$root" apt-get purge -y ga10b-toolkit-dev >"$said" 2>&1 || broken "purge of the -dev package"
}

# Takes the package away.
purge() {
    local root=$1 said=$1.out out
    inside "$root" apt-get purge -y ga10b-toolkit >"$said" 2>&1 || broken "purge"
    out=$(find "$root/usr" "$root/etc" -path '*ga10b-toolkit*' -o -name 'nvdiag*' -o -name 'llm-demo*')
    [ -z "$out" ] || fail "left after purge: $out"
}

# The packages and the wheel of an architecture, which has another name in the wheel's.
found() {
    local machine=aarch64
    [ "$arch" = arm64 ] || machine=x86_64
    package=$(ls target/packages/ga10b-toolkit_*_"$arch".deb) || fail "no package: tools/package.sh makes one"
    dev=$(ls target/packages/ga10b-toolkit-dev_*_"$arch".deb) || fail "no -dev package: tools/package.sh makes one"
    wheel=$(ls target/wheels/hcq-*_"$machine".whl) || fail "no wheel: tools/python-wheel.sh makes one"
}

archs=arm64
[ "$(uname -m)" = aarch64 ] || archs="amd64 arm64"
checked=
for arch in ${ARCHS:-$archs}; do
    export arch
    found
    for suite in ${SUITES:-jammy noble bookworm trixie}; do
        root=$roots/$suite
        case $suite in
        jammy) title='Ubuntu 22.04 (jammy, glibc 2.35, JetPack 6)' ;;
        noble) title='Ubuntu 24.04 (noble, glibc 2.39, JetPack 7)' ;;
        bookworm) title='Debian 12 (bookworm, glibc 2.36)' ;;
        trixie) title='Debian 13 (trixie, glibc 2.41)' ;;
        *) title=$suite ;;
        esac
        echo "== $title, $arch"
        if ! system "$suite" "$root"; then
            echo "skipped: $title, $arch: $(grep -m 1 '^E:' "$root.log" || tail -n 1 "$root.log")"
            continue
        fi
        install -m 644 "$package" "$root/root/toolkit.deb"
        install -m 644 "$dev" "$root/root/toolkit-dev.deb"
        install -m 644 "$wheel" "$root/root"
        # Those of Python take their kernels from beside them, as in the sources.
        mkdir -p "$root/root/sources/hcq/examples"
        install -D -m 644 -t "$root/root/sources/hcq-py/examples" hcq-py/examples/*.py
        cp -r hcq/examples/kernels "$root/root/sources/hcq/examples"
        owner "$root"
        programmer "$root"
        purge "$root"
        rm -rf "$root"
        checked="$checked $suite/$arch"
    done
done
[ -n "$checked" ] || fail "no system could be made"
echo "the packages work in:$checked"
