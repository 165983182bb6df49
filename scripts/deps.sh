#!/bin/sh
# deps.sh [run|test|pool|bench|engines] - install what Yunhe needs to run, test or measure.
#
#   run    what `make run` needs: Go, and node with npm for the console.
#          Installs nothing.
#   test   adds the engines the tests start: PostgreSQL, Slurm with MariaDB,
#          Prometheus, runc, sshd, Chromium with Chinese fonts, an S3 server (built from source),
#          OpenCL on the CPU (PoCL, Oclgrind) with its headers and gcc, and
#          busybox, of which they make an image.
#   pool   adds programs of others that use OpenCL: clpeak, hashcat, ffmpeg,
#          PyOpenCL, OpenCV, clFFT's client, CLBlast's tests, silx, UFO, GEGL,
#          StarPU's examples, hcxkeys and Mandelbulber; a third implementation of OpenCL:
#          Mesa's rusticl on the CPU; and qemu with a kernel for virtual
#          machines, and other systems (Debian and Ubuntu), which are not
#          installed: 1.3 GB in .cache/engines/systems.
#   bench  adds the control plane of Kubernetes and etcd, built from source
#          into .cache/engines: several CPU minutes, at the lowest priority,
#          and 6 GB of Go caches.
#   engines  adds what makes a whole cluster of that: kwok, which plays nodes,
#          and the real kubelet, built from source too, with containerd and
#          its network plug-ins.
#
# Prints one line for each thing it installs. With everything there it prints
# nothing and takes well under a second. Needs root and apt-get to install
# packages; without them it prints the command to run and exits 1.
set -eu

mode=${1:-run} virtual=
case $mode in
run | test | pool | bench | engines) ;;
*)
	echo "usage: deps.sh [run|test|pool|bench|engines]; got \"$mode\"" >&2
	exit 2
	;;
esac

cd "$(dirname "$0")/.."
root=$PWD
engines=${YUNHE_ENGINES:-$root/.cache/engines}

kubernetes=1.34.4 # newest 1.34; 1.35 and up drop cgroup v1
etcd=3.6.8        # Debian's 3.4 lacks progress requests, which watches need
kwok=0.7.0
versitygw=1.8.0

say() { printf 'deps: %s\n' "$*"; }
fail() {
	printf 'deps: %s\n' "$*" >&2
	exit 1
}
work= policy_made=
cleanup() {
	if [ -n "$work" ]; then rm -rf "$work"; fi
	if [ -n "$policy_made" ]; then rm -f "$policy_made"; fi
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
have() { PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1; }

# 1. Go and node. A Go of 1.21 or later fetches the release that go.mod asks
# for by itself, unless GOTOOLCHAIN forbids it.
want_go=$(awk '$1 == "go" { print $2; exit }' go.mod)
have go || fail "Go $want_go or later is not installed"
got_go=$(go env GOVERSION 2>/dev/null || true)
newest=$(printf '%s\n%s\n' "$want_go" "${got_go#go}" | sort -V | tail -n 1)
[ "$newest" = "${got_go#go}" ] || fail "Go $want_go or later is needed, found ${got_go:-one that cannot fetch it (GOTOOLCHAIN=$(go env GOTOOLCHAIN))}"
if [ "$mode" = run ]; then
	if ! have node || ! have npm; then
		say "node and npm are not installed: the binary is built without its console"
	fi
	exit 0
fi

# 2. Debian packages. A package is named when what we use of it is missing, so
# that the same thing installed another way counts.
missing=
want() { missing="$missing $1"; }
needs() { have "$1" || want "$2"; }
needs_file() { # needs_file PACKAGE PATTERN...
	package=$1
	shift
	for pattern; do
		for file in $pattern; do
			if [ -e "$file" ]; then return; fi
		done
	done
	want "$package"
}
needs node nodejs
needs npm npm
needs curl curl
needs openssl openssl
needs ps procps
needs ip iproute2
needs nsenter util-linux
needs setpriv util-linux
needs runc runc
needs mkfs.ext4 e2fsprogs
needs sshd openssh-server
needs ssh-keygen openssh-client
needs munged munge
needs slurmctld slurmctld
needs slurmd slurmd
needs slurmrestd slurmrestd
needs sbatch slurm-client
needs slurmdbd slurmdbd
needs_file slurm-wlm-mysql-plugin '/usr/lib/*/slurm*/accounting_storage_mysql.so' '/usr/lib*/slurm/accounting_storage_mysql.so'
needs mariadbd mariadb-server-core
needs_file slurm-wlm-jwt-plugin '/usr/lib/*/slurm*/auth_jwt.so' '/usr/lib*/slurm/auth_jwt.so'
needs prometheus prometheus
needs gcc gcc
needs musl-gcc musl-tools
needs_file libc6-dev '/usr/include/stdlib.h'
needs_file opencl-c-headers /usr/include/CL/cl_icd.h
needs_file ocl-icd-libopencl1 '/usr/lib/*/libOpenCL.so.1' '/usr/lib*/libOpenCL.so.1'
needs_file pocl-opencl-icd /etc/OpenCL/vendors/pocl.icd
needs_file oclgrind /usr/lib/oclgrind/liboclgrind-rt-icd.so
needs clinfo clinfo
needs_file busybox-static /bin/busybox /usr/bin/busybox
needs chromium chromium
needs_file fonts-noto-cjk '/usr/share/fonts/*/noto*/*CJK*' '/usr/share/fonts/*CJK*'
needs_file postgresql '/usr/lib/postgresql/*/bin/postgres' "$(command -v postgres || echo /nowhere)"
if [ "$mode" = pool ]; then
	needs clpeak clpeak
	needs hashcat hashcat
	needs ffmpeg ffmpeg
	needs clFFT-client clfft-client
	needs mandelbulber2 mandelbulber2
	needs clblast_test_xdot clblast-tests
	needs_file python3-pyopencl /usr/lib/python3/dist-packages/pyopencl
	needs_file python3-opencv "/usr/lib/python3/dist-packages/cv2*"
	needs_file python3-silx /usr/lib/python3/dist-packages/silx
	needs_file python3-pytest /usr/lib/python3/dist-packages/pytest
	needs ufo-launch libufo-bin
	needs_file ufo-filters '/usr/lib/*/ufo/libufofilterblur.so'
	needs gegl gegl
	needs wlangenpmkocl hcxkeys
	needs_file starpu-examples '/usr/lib/*/starpu/examples/block'
	needs_file mesa-opencl-icd '/usr/lib/*/libRusticlOpenCL.so.1'
	needs qemu-system-x86_64 qemu-system-x86
	needs mmdebstrap mmdebstrap
	needs zstd zstd
	mode=test virtual=1
fi
if [ "$mode" = engines ]; then
	needs containerd containerd
	needs ctr containerd
	needs_file containernetworking-plugins /usr/lib/cni/bridge /opt/cni/bin/bridge
fi

if [ -n "$missing" ]; then
	# shellcheck disable=SC2086 # words of a list
	set -- $missing
	install="apt-get install -y --no-install-recommends $*"
	if ! have apt-get; then
		fail "missing, as Debian names them: $*"
	elif [ "$(id -u)" -ne 0 ]; then
		fail "missing: $*; as root: apt-get update && $install"
	fi
	say "installing packages: $*"
	# The tests start their own engines. Installing one must not start it as
	# a service, which would listen on every address of the machine.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e $policy ]; then
		policy_made=$policy
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod 755 $policy
	fi
	log=$(mktemp)
	export DEBIAN_FRONTEND=noninteractive
	if ! { apt-get -q update && $install; } >"$log" 2>&1 </dev/null; then
		tail -n 20 "$log" >&2
		rm -f "$log"
		fail "cannot install packages: $install"
	fi
	rm -f "$log"
	cleanup
	policy_made=
fi

# A kernel for virtual machines: what its package has, not installed.
if [ -n "$virtual" ] && [ ! -e "$engines/vm/vmlinuz" ] && have apt-get; then
	say "unpacking a kernel for virtual machines"
	work=$(mktemp -d)
	kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ { print $2; exit }')
	[ -n "$kernel" ] || fail "linux-image-cloud-amd64 is not known: apt-get update"
	(cd "$work" && apt-get -q download "$kernel" >/dev/null 2>&1 && dpkg -x "$kernel"_*.deb tree) || fail "cannot download $kernel"
	rm -rf "$engines/vm"
	mkdir -p "$engines/vm"
	mv "$work/tree/lib/modules" "$engines/vm/modules"
	mv "$work"/tree/boot/vmlinuz-* "$engines/vm/vmlinuz"
	rm -rf "$work"
	work=
fi

# Other systems, each a folder, packed: a shell, the loader of OpenCL, clinfo, OpenSSL and PoCL (Ubuntu 16.04 has none), not
# configured. mmdebstrap knows where each comes from; the keys of Ubuntu are in Debian 13. One may be out of date.
unpacked_system() { # unpacked_system SUITE COMPONENTS PACKAGES KEYS
	to=$engines/systems/$1.tar.zst
	if [ -e "$to" ]; then return; fi
	say "unpacking a system: $1"
	keys=
	if [ -n "$4" ]; then keys="--keyring=$4"; fi
	if mmdebstrap --quiet --variant=extract --aptopt='Acquire::Check-Valid-Until "false"' --components="$2" $keys \
		--include="base-files,base-passwd,dash,coreutils,libc-bin,ocl-icd-libopencl1,clinfo$3" "$1" "$to.part.tar.zst" >"$work/log" 2>&1; then
		mv "$to.part.tar.zst" "$to"
	else
		tail -n 3 "$work/log" >&2
		rm -f "$to.part.tar.zst"
		say "WITHOUT THE SYSTEM $1: its mirror does not serve it"
	fi
}
if [ -n "$virtual" ] && have apt-get && [ "$(id -u)" -eq 0 ]; then
	mkdir -p "$engines/systems"
	work=$(mktemp -d)
	for suite in trixie forky; do unpacked_system $suite main ,pocl-opencl-icd,libssl3t64 ""; done
	unpacked_system bookworm main ,pocl-opencl-icd,libssl3 ""
	unpacked_system bullseye main ,pocl-opencl-icd,libssl1.1 ""
	ubuntu=$engines/systems/ubuntu.gpg
	if [ ! -e "$ubuntu" ]; then
		mmdebstrap --quiet --variant=extract --include=ubuntu-archive-keyring trixie "$work/keys" >"$work/log" 2>&1 &&
			cp "$work/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" "$ubuntu" || say "WITHOUT THE KEYS OF UBUNTU: Debian 13 does not serve them"
	fi
	if [ -e "$ubuntu" ]; then
		unpacked_system noble main,universe ,pocl-opencl-icd,libssl3t64 "$ubuntu"
		unpacked_system jammy main,universe ,pocl-opencl-icd,libssl3 "$ubuntu"
		for suite in focal bionic; do unpacked_system $suite main,universe ,pocl-opencl-icd,libssl1.1 "$ubuntu"; done
		unpacked_system xenial main,universe ,libssl1.0.0 "$ubuntu"
	fi
	rm -rf "$work"
	work=
fi

# 3. Engines built from source. Each has a file with its version beside it.
built() { [ -x "$engines/$1" ] && [ "$(cat "$engines/$1.version" 2>/dev/null)" = "$2" ]; }
keep() { # keep NAME VERSION: move $work/bin/NAME into place, atomically
	mv "$work/bin/$1" "$engines/$1"
	printf '%s\n' "$2" >"$engines/$1.version"
}
build_module() { # build_module DIR FILE: a module that imports what FILE lists
	mkdir -p "$1"
	cd "$1"
	printf 'module engines\n\ngo 1.24.0\n\ngodebug default=go1.24\n' >go.mod
}
gobuild() { nice -n 19 env CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOWORK=off go build -trimpath "$@"; }
gomod() { nice -n 19 env GOFLAGS= GOWORK=off go "$@" >"$work/log" 2>&1 || {
	tail -n 20 "$work/log" >&2
	fail "cannot resolve the modules of an engine: go $*"
}; }

build_versitygw() {
	built versitygw $versitygw && return
	say "building versitygw $versitygw (S3 server)"
	build_module "$work/versitygw"
	printf '//go:build tools\n\npackage tools\n\nimport _ "github.com/versity/versitygw/cmd/versitygw"\n' >tools.go
	gomod get github.com/versity/versitygw@v$versitygw
	gomod mod tidy
	gobuild -ldflags '-s -w' -o "$work/bin/versitygw" github.com/versity/versitygw/cmd/versitygw
	keep versitygw $versitygw
}

build_etcd() {
	built etcd $etcd && return
	say "building etcd $etcd"
	build_module "$work/etcd"
	printf '//go:build tools\n\npackage tools\n\nimport _ "go.etcd.io/etcd/server/v3"\n' >tools.go
	gomod get go.etcd.io/etcd/server/v3@v$etcd
	gomod mod tidy
	gobuild -ldflags '-s -w' -o "$work/bin/etcd" go.etcd.io/etcd/server/v3
	keep etcd $etcd
}

programs="kube-apiserver kube-controller-manager kube-scheduler"
if [ "$mode" = engines ]; then programs="$programs kubelet"; fi

build_kwok() {
	built kwok $kwok && return
	say "building kwok $kwok"
	nice -n 19 env CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOWORK=off GOBIN="$work/bin" \
		go install -trimpath -ldflags '-s -w' sigs.k8s.io/kwok/cmd/kwok@v$kwok
	keep kwok $kwok
}

build_kubernetes() {
	stale=
	for program in $programs; do
		built $program $kubernetes || stale="$stale $program"
	done
	[ -n "$stale" ] || return 0
	say "building Kubernetes $kubernetes:$stale (several minutes)"
	build_module "$work/kubernetes"
	gomod mod edit -require=k8s.io/kubernetes@v$kubernetes
	gomod mod download k8s.io/kubernetes@v$kubernetes
	# k8s.io/kubernetes takes its parts from its own tree; outside it they are
	# modules of their own, of the same release.
	source=$(go env GOMODCACHE)/k8s.io/kubernetes@v$kubernetes/go.mod
	for module in $(awk '/=> \.\/staging/ { print $1 == "replace" ? $2 : $1 }' "$source"); do
		gomod mod edit "-replace=$module=$module@v0.${kubernetes#1.}"
	done
	{
		printf '//go:build tools\n\npackage tools\n\nimport (\n'
		for program in $programs; do
			printf '\t_ "k8s.io/kubernetes/cmd/%s"\n' $program
		done
		printf ')\n'
	} >tools.go
	gomod mod tidy
	v=k8s.io/component-base/version
	minor=${kubernetes#1.}
	for program in $stale; do
		gobuild -ldflags "-s -w -X $v.gitVersion=v$kubernetes -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*}" \
			-o "$work/bin/$program" "k8s.io/kubernetes/cmd/$program"
		keep "$program" $kubernetes
	done
}

all_built() {
	built versitygw $versitygw || return 1
	[ "$mode" != test ] || return 0
	built etcd $etcd || return 1
	for program in $programs; do
		built "$program" $kubernetes || return 1
	done
	[ "$mode" != engines ] || built kwok $kwok
}

all_built && exit 0
mkdir -p "$engines"
exec 9>"$engines/.lock"
flock 9 # another deps.sh may be building the same
work=$(mktemp -d "$engines/.work-XXXXXX")
mkdir "$work/bin"
(build_versitygw)
if [ "$mode" != test ]; then
	(build_etcd)
	(build_kubernetes)
fi
if [ "$mode" = engines ]; then (build_kwok); fi
