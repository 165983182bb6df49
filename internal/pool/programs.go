package pool

import (
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// built holds what the build made first (scripts/pool.sh): the worker and the
// client libraries, for the machine it ran on.
//
//go:embed all:programs
var built embed.FS

const (
	workerProgram = "yunhe-pool-worker"
	clientLibrary = "libyunhe-pool.so"
	loaderLibrary = "libOpenCL.so.1"
	cudaLibrary   = "libyunhe-cuda.so"
	remoteLibrary = "libyunhe-cuda-remote.so"
	testProgram   = "yunhe-pool-program"
)

func packed(name string) ([]byte, error) {
	f, err := built.Open("programs/" + name + ".gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// Built says whether this program has the worker and the client library in it.
func Built() bool {
	_, err := built.Open("programs/" + clientLibrary + ".gz")
	return err == nil
}

// unpack puts one of them into a folder, if it is not there, and returns where it is.
func unpack(dir, name string) (string, error) {
	want, err := packed(name)
	if err != nil {
		return "", fault.Wrap(fault.Unimplemented, err, "this yunhe was built without %s: build it on Linux with gcc and the headers of OpenCL (opencl-c-headers)", name)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fault.Wrap(fault.Invalid, err, "%s cannot be made", dir)
	}
	path := filepath.Join(dir, name)
	return path, put(path, want, 0o755)
}

// putTime is longer than anybody takes to write one of them.
const putTime = time.Hour

// put writes a file that is not so already, at once: others may use it meanwhile.
func put(path string, want []byte, mode os.FileMode) error {
	left, _ := filepath.Glob(path + "-[0-9]*") // of who was killed; the pattern is right
	for _, old := range left {
		if i, err := os.Lstat(old); err == nil && time.Since(i.ModTime()) > putTime {
			_ = os.Remove(old) // it costs space only
		}
	}
	if got, err := os.ReadFile(path); err == nil && string(got) == string(want) {
		return nil
	}
	syscall.ForkLock.RLock() // a child that had the file open to write to it would keep it from being started
	defer syscall.ForkLock.RUnlock()
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-")
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "%s cannot be written", path)
	}
	_, err = f.Write(want)
	if e := f.Chmod(mode); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use
		return fault.Wrap(fault.Invalid, err, "%s cannot be written", path)
	}
	return nil
}

// TestProgram puts a program of OpenCL into a folder, which knows nothing of the
// pool and checks what it computes, and returns where it is.
func TestProgram(dir string) (string, error) { return unpack(dir, testProgram) }

// Library puts the client library into a folder, with the file by which the
// loader of OpenCL finds it, and returns the folder of that. Beside that is the
// loader for programs that find none ([LoaderFolder]).
func Library(dir string) (vendors string, err error) {
	lib, err := unpack(dir, clientLibrary)
	if err == nil {
		err = unpackLoader(dir)
	}
	if err != nil {
		return "", err
	}
	if lib, err = filepath.Abs(lib); err != nil {
		return "", err
	}
	vendors = filepath.Join(filepath.Dir(lib), Vendors)
	if err := os.MkdirAll(vendors, 0o700); err != nil {
		return "", fault.Wrap(fault.Invalid, err, "%s cannot be made", vendors)
	}
	return vendors, put(filepath.Join(vendors, "yunhe.icd"), []byte(lib+"\n"), 0o600)
}

// CUDALibrary puts the library into a folder that programs of CUDA load before
// others (LD_PRELOAD), and returns where it is.
func CUDALibrary(dir string) (string, error) {
	path, err := unpack(dir, cudaLibrary)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// RemoteCUDA puts the library that is the driver of CUDA for programs that a worker
// computes for into a folder of its own, under the names that programs look for,
// and returns the folder.
func RemoteCUDA(dir string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(dir, CUDAFolder))
	if err != nil {
		return "", err
	}
	if _, err := unpack(dir, remoteLibrary); err != nil {
		return "", err
	}
	return dir, links(dir, remoteLibrary, "libcuda.so.1", "libcuda.so")
}

// links gives a file of a folder more names.
func links(dir, file string, names ...string) error {
	for _, name := range names {
		link := filepath.Join(dir, name)
		if to, err := os.Readlink(link); err == nil && to == file {
			continue
		}
		_ = os.Remove(link) // or there is none
		if err := os.Symlink(file, link); err != nil && !os.IsExist(err) {
			return fault.Wrap(fault.Invalid, err, "%s cannot be made", link)
		}
	}
	return nil
}

// CUDAFolder is the folder of that beside the client library, and CUDALoaded what
// programs load of it before others.
const (
	CUDAFolder = "cuda"
	CUDALoaded = CUDAFolder + "/libcuda.so.1"
)

// CUDABefore is what programs that have the driver themselves load before others of a
// folder that [CUDALibrary] put it into.
const CUDABefore = cudaLibrary

// RemoteCUDAEnvironment is what a program finds that library by: first in the
// search path, and loaded before others for those that open the driver by its
// whole name. path and preload are what these variables are now.
func RemoteCUDAEnvironment(dir, path, preload string) []string {
	return []string{"LD_LIBRARY_PATH=" + before(dir, path), "LD_PRELOAD=" + before(filepath.Join(dir, "libcuda.so.1"), preload)}
}

// NVIDIACards has a folder for each card of NVIDIA's, by its place on the bus.
const NVIDIACards = "/proc/driver/nvidia/gpus"

// NVIDIAMinor is the number of the device file, /dev/nvidia0, of the card that a folder
// has at a place on the bus; -1: that is not known.
func NVIDIAMinor(folder, bus string) int {
	b, _ := os.ReadFile(filepath.Join(folder, strings.ToLower(filepath.Base(bus)), "information")) // none: as if nothing was in it
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "Device Minor" {
			if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && n >= 0 {
				return n
			}
		}
	}
	return -1
}

// CUDACard is a card as CUDA knows it, and its place on the bus.
type CUDACard struct{ UUID, Bus string }

// CUDAEnvironment is what a program on the node's machine has to find its cards by
// ([CUDACards]), and the library before the driver, which holds it to those cards by their
// UUIDs. preload is what that variable is now.
func CUDAEnvironment(library, preload string, cards ...CUDACard) []string {
	return append([]string{"LD_PRELOAD=" + before(library, preload)}, CUDACards(cards...)...)
}

// CUDACards is what such a program is told of its cards, in the order of its tasks.
func CUDACards(cards ...CUDACard) []string {
	var uuids []string
	for _, c := range cards {
		uuids = append(uuids, c.UUID)
	}
	list := strings.Join(cudaNumbers("/", cards), ",")
	return []string{"YUNHE_POOL_CARD=" + strings.Join(uuids, ","), "YUNHE_POOL_VISIBLE=" + list, "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=" + list}
}

// cudaNumbers is how programs are told of cards: by their numbers as the driver counts by
// places on the bus, and NVML, if those can be seen: some (vLLM) read CUDA_VISIBLE_DEVICES as
// numbers. Parts of a card have none. And who starts a process for each card may say which by
// its place among the program's: where that could be taken for another's number, all are told
// by their UUIDs, too. In a container that is shown files of some cards the driver counts
// those.
func cudaNumbers(root string, cards []CUDACard) []string {
	folder := filepath.Join(root, NVIDIACards)
	all, _ := os.ReadDir(folder) // sorted; none: as if no card was among them
	if shown := slices.DeleteFunc(slices.Clone(all), func(e os.DirEntry) bool {
		minor := NVIDIAMinor(folder, e.Name())
		_, err := os.Stat(filepath.Join(root, "dev", fmt.Sprintf("nvidia%d", minor)))
		return minor >= 0 && errors.Is(err, os.ErrNotExist)
	}); len(shown) > 0 { // else this is beside what is shown them
		all = shown
	}
	var numbers, uuids []string
	can := true
	for place, c := range cards {
		i := slices.IndexFunc(all, func(e os.DirEntry) bool { return strings.EqualFold(e.Name(), c.Bus) })
		can = can && i >= 0 && strings.HasPrefix(c.UUID, "GPU-") && (i == place || i >= len(cards))
		numbers, uuids = append(numbers, strconv.Itoa(i)), append(uuids, c.UUID)
	}
	if can {
		return numbers
	}
	return uuids
}

// before is a list that has something first.
func before(first, others string) string {
	if others == "" {
		return first
	}
	return first + ":" + others
}

// TransportVariable names the path that a program's calls take, for tests and
// measuring: "ring", "rdma" or "socket"; else the best that there is.
const TransportVariable = "YUNHE_POOL_TRANSPORT"

// PassesVariable is how what takes a run's shares finds its passes. The run's
// command does not see it.
const PassesVariable = "YUNHE_POOL_PASSES"

// PassesWait is how long what takes a run's shares waits for passes that are good,
// where newer ones come as a file.
const PassesWait = 60 * time.Second

// Where programs find their shares by a file, since what it says is known only
// after they were made to be started: the variable that names it, and its name.
const (
	FileVariable = "YUNHE_POOL_FILE"
	SliceFile    = "slice.env"
)

// Leads reports whether a variable of an environment says where slices or drivers of
// OpenCL are: programs on other slices do not get it.
func Leads(variable string) bool {
	return strings.HasPrefix(variable, "YUNHE_POOL_") && variable != TransportVariable || strings.HasPrefix(variable, "OCL_ICD_")
}

// Environment is what a program finds its shares by: the i-th, from 0, with its
// interface, the node's address, its task and the task's token. A share of CUDA's is
// none to the client library of OpenCL, which the same program may load.
func Environment(i int, api, at, task, token string) []string {
	more := ""
	if i > 0 {
		more = fmt.Sprintf("_%d", i+1)
	}
	env := []string{"YUNHE_POOL_ADDRESS" + more + "=" + at, "YUNHE_POOL_TASK" + more + "=" + task, "YUNHE_POOL_TOKEN" + more + "=" + token}
	if api == CUDA {
		env = append(env, "YUNHE_POOL_API="+api)
	}
	return env
}

// version is the beginning of the SHA-256 of a program, "" if this build has none.
func version(name string) string {
	b, err := packed(name)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:6])
}
