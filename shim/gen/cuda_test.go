package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// header is where CUDA's header is, if it is installed: $CUDA_HEADER first.
func header(t *testing.T) string {
	t.Helper()
	for _, path := range []string{os.Getenv("CUDA_HEADER"), "/usr/include/cuda.h", "/usr/local/cuda/include/cuda.h"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("SKIPPED: CUDA's header cuda.h is not installed; $CUDA_HEADER can name it")
	return ""
}

var (
	prototype = regexp.MustCompile(`CUresult\s+(cu\w+)\s*\(([^;]*?)\)\s*;`)
	lastName  = regexp.MustCompile(`\s*\b\w+$`)
	aVersion  = regexp.MustCompile(`_v\d$`)
)

// prototypes are the functions that a header declares, and the types of their parameters.
func prototypes(t *testing.T, path string) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "gcc", "-E", "-P", "-I"+filepath.Dir(path), "-")
	cmd.Stdin = strings.NewReader("#include <cuda.h>\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gcc -E: %v", err)
	}
	all := map[string][]string{}
	for _, m := range prototype.FindAllStringSubmatch(strings.ReplaceAll(string(out), "\n", " "), -1) {
		types := []string{}
		for p := range strings.SplitSeq(m[2], ",") {
			p = strings.Join(strings.Fields(p), " ")
			if i := strings.LastIndexByte(p, '*'); i >= 0 {
				p = p[:i+1]
			} else if strings.Contains(p, " ") && p != "unsigned int" {
				p = lastName.ReplaceAllString(p, "")
			}
			if p != "void" {
				types = append(types, p)
			}
		}
		all[m[1]] = types
	}
	return all
}

// kindOf is what the table calls a type that is no pointer, "" for what has no name there.
func kindOf(c string) string {
	c = aVersion.ReplaceAllString(strings.TrimSpace(strings.ReplaceAll(c, "const ", "")), "")
	switch c {
	case "unsigned int", "unsigned", "cuuint32_t":
		return "u32"
	case "int":
		return "i32"
	case "unsigned long long", "cuuint64_t":
		return "u64"
	case "size_t":
		return "size"
	case "unsigned char":
		return "u8"
	case "unsigned short":
		return "u16"
	case "float":
		return "u32" // its bits
	}
	names := map[string]string{
		"CUcontext": "ctx", "CUstream": "stream", "CUevent": "event", "CUmodule": "module", "CUfunction": "function", "CUlibrary": "library", "CUkernel": "kernel", "CUgraph": "graph", "CUgraphExec": "exec",
		"CUgraphNode": "node", "CUarray": "array", "CUmipmappedArray": "mipmap", "CUmemoryPool": "pool", "CUmemGenericAllocationHandle": "mem", "CUdevice": "dev", "CUdeviceptr": "ptr",
		"CUtexObject": "u64", "CUsurfObject": "u64",
	}
	if k := names[c]; k != "" {
		return k
	}
	return map[bool]string{true: "i32"}[strings.HasPrefix(c, "CU")] // an enumeration
}

// TestHeader: what the table says of functions is what the maker's header declares, and
// none of its functions is missing. Functions that are written by hand are compared by
// name only.
func TestHeader(t *testing.T) {
	declared := prototypes(t, header(t))
	if len(declared) < 300 {
		t.Fatalf("the header declares %d functions", len(declared))
	}
	text, err := os.ReadFile("../cuda.table")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := parseCUDA(string(text))
	if err != nil {
		t.Fatal(err)
	}
	// Of some another form crosses the wire, which both sides know.
	apart := []string{"cuThreadExchangeStreamCaptureMode", "cuStreamGetCaptureInfo_v2", "cuTexObjectCreate", "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col", "cuTensorMapReplaceAddress"}
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
		types, ok := declared[r.name]
		if !ok || slices.Contains([]string{"hand", "none", "op"}, r.how) || slices.Contains(apart, r.name) {
			continue
		}
		if len(types) != len(r.params) {
			t.Errorf("%s has %d parameters in the table, and these in the header: %q", r.name, len(r.params), types)
			continue
		}
		for i, p := range r.params {
			kind := strings.TrimLeft(p, ">?")
			bytes := strings.HasPrefix(kind, "in:") || strings.HasPrefix(kind, "out:")
			pointer := p != kind || bytes || kind == "text"
			is, isPointer := kindOf(strings.TrimRight(types[i], " *")), strings.HasSuffix(types[i], "*")
			switch {
			case isPointer && types[i] == "void *" && (kind == "ptr" || kind == "u64"): // an address of the device, or a word of any kind
			case pointer != isPointer, !bytes && kind != "text" && is != kind && (is != "i32" || kind != "u32") && (is != "ctx" || kind != "u64"):
				t.Errorf("%s: its parameter %d is %s in the table, and %q in the header", r.name, i, p, types[i])
			}
		}
	}
	for name := range declared {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing in the table", name)
		}
	}
}
