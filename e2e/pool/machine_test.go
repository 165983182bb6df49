package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

// machineInit is the first program of a virtual machine, whose wire is on the
// pool's network: it asks the pool for a slice as anybody would.
const machineInit = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
modprobe virtio_pci
modprobe virtio_net
ip link set lo up
ip link set eth0 up
ip addr add %[1]s/24 dev eth0
echo "kernel: $(uname -r), accelerators: $(ls /dev/dri /dev/nvidia* 2>/dev/null | wc -l)"
YUNHE_SERVER=%[2]s YUNHE_KEY=%[3]s /bin/yunhe pool run --group g --compute 50 --memory 64MiB -- /bin/program add 3
echo "ended: $?"
poweroff -f
`

// machineImage is what a virtual machine has: busybox, yunhe, a program with its
// libraries, and drivers of its wire.
func (w *world) machineImage(dir, modules, init string) string {
	w.t.Helper()
	root := filepath.Join(dir, "root")
	put := func(from, to string) {
		to = filepath.Join(root, to)
		must(w.t, os.MkdirAll(filepath.Dir(to), 0o755))
		b, err := os.ReadFile(from)
		must(w.t, err)
		must(w.t, os.WriteFile(to, b, 0o755))
	}
	for _, d := range []string{"proc", "sys", "dev", "tmp", "root"} {
		must(w.t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	busybox, err := exec.LookPath("busybox")
	must(w.t, err)
	put(busybox, "bin/busybox")
	put(binary, "bin/yunhe")
	put(w.bench.Program, "bin/program")
	libraries, err := exec.Command("ldd", w.bench.Program).Output()
	must(w.t, err)
	for _, at := range regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1) {
		put(at, at)
		if dir, file := filepath.Split(at); file == "libc.so.6" { // what else there is of it wherever it is
			for _, part := range []string{"libpthread.so.0", "librt.so.1", "libdl.so.2"} {
				put(dir+part, dir+part)
			}
		}
	}
	versions, err := os.ReadDir(modules)
	must(w.t, err)
	version := versions[0].Name()
	for _, pattern := range []string{"drivers/virtio/*.ko", "net/core/failover.ko", "drivers/net/net_failover.ko", "drivers/net/virtio_net.ko"} {
		found, err := filepath.Glob(filepath.Join(modules, version, "kernel", pattern))
		must(w.t, err)
		for _, f := range found {
			in, err := filepath.Rel(modules, f)
			must(w.t, err)
			put(f, filepath.Join("lib/modules", in))
		}
	}
	if out, err := exec.Command(busybox, "depmod", "-b", root, version).CombinedOutput(); err != nil {
		w.t.Fatalf("depmod: %v: %s", err, out)
	}
	must(w.t, os.WriteFile(filepath.Join(root, "init"), []byte(init), 0o755))
	image := filepath.Join(dir, "image")
	if out, err := exec.Command("sh", "-c", `cd "$1" && find . | "$2" cpio -o -H newc >"$3"`, "sh", root, busybox, image).CombinedOutput(); err != nil {
		w.t.Fatalf("cpio: %v: %s", err, out)
	}
	return image
}

// TestVirtualMachine: an unmodified program in a virtual machine, with a kernel and
// a network of its own and no accelerator, computes on a card of the pool. The
// machine is emulated: with the kernel's help (KVM) it does not start everywhere.
func TestVirtualMachine(t *testing.T) {
	if os.Getenv("YUNHE_TEST_POOL") == "" {
		t.Skip("SKIPPED: a virtual machine takes a while to start; make test-pool runs it")
	}
	engines := os.Getenv("YUNHE_ENGINES")
	if engines == "" {
		engines = "../../.cache/engines"
	}
	kernel := filepath.Join(engines, "vm/vmlinuz")
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if _, missing := os.Stat(kernel); err != nil || missing != nil {
		t.Skip("SKIPPED: there is no qemu, or no kernel for it: scripts/deps.sh pool")
	}
	w := open(t, true)
	if !w.spaces {
		t.Skip("SKIPPED: no network namespaces can be made here")
	}
	w.node("n1", w.vendors("one", "pocl.icd"))
	w.online(1)
	_, err = w.bench.API.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)
	native, err := exec.Command(w.bench.Program, "add", "3").Output()
	must(t, err)

	const wire, address = "yhpvm", subnet + "200"
	must(t, ip("tuntap add dev "+wire+" mode tap"))
	t.Cleanup(func() { _ = ip("link del " + wire) })
	must(t, ip("link set "+wire+" master "+bridge+" up"))
	image := w.machineImage(t.TempDir(), filepath.Join(engines, "vm/modules"), fmt.Sprintf(machineInit, address, w.url, w.key))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu, "-accel", "tcg", "-cpu", "max", "-m", "1024", "-nographic", "-no-reboot", "-kernel", kernel, "-initrd", image, "-append", "console=ttyS0 quiet",
		"-netdev", "tap,id=n,ifname="+wire+",script=no,downscript=no", "-device", "virtio-net-pci,netdev=n,romfile=")
	out, err := cmd.CombinedOutput()
	said := string(bytes.ReplaceAll(out, []byte("\r\n"), []byte("\n")))
	if err != nil || !strings.Contains(said, string(native)) || !strings.Contains(said, "accelerators: 0") || !strings.Contains(said, "ended: 0") {
		t.Fatalf("%v: the machine says\n%s\nwant what the program prints natively:\n%s", err, said, native)
	}
}
