package main

import (
	"fmt"
	"go/format"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
)

// cudaHandles are the kinds of objects of CUDA, in the order of their numbers.
var cudaHandles = []string{"ctx", "stream", "event", "module", "function", "library", "kernel", "graph", "exec", "node", "array", "mipmap", "pool", "mem", "link"}

// cudaTypes are the C types of parameters. What crosses the wire is a word of each.
var cudaTypes = map[string]string{"i32": "int", "u32": "unsigned", "u64": "uint64_t", "size": "size_t", "ptr": "CUdeviceptr", "u8": "unsigned char", "u16": "unsigned short", "dev": "CUdevice", "text": "const char *"}

// cudaRow is a line of shim/cuda.table.
type cudaRow struct {
	number                   int // 0: nothing crosses the wire
	how, name, base          string
	since                    int
	work, blocks, ptsz, ptds bool
	params                   []string
}

func cuda() {
	const path = "shim/cuda.table"
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	rows, err := parseCUDA(string(text))
	if err != nil {
		log.Fatal(path, ": ", err)
	}
	write("shim/remote/stubs.h", []byte(cudaStubs(rows)))
	src, err := format.Source([]byte(cudaTable(rows)))
	if err != nil {
		log.Fatal(err)
	}
	write("internal/pool/wire/cuda.go", src)
}

func parseCUDA(text string) ([]cudaRow, error) {
	var rows []cudaRow
	seen := map[int]bool{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		if len(f) < 4 {
			return nil, fmt.Errorf("not a line of the table: %q", line)
		}
		r := cudaRow{how: f[1], name: f[2]}
		n, err := strconv.Atoi(f[0])
		if r.number = n; f[0] != "-" && (err != nil || n < 1024 || seen[n]) {
			return nil, fmt.Errorf("its number is none, or used twice: %q", line)
		}
		seen[n] = true
		if !slices.Contains([]string{"stub", "post", "send", "inner", "hand", "none", "op"}, r.how) || (r.number == 0) != (r.how == "hand" || r.how == "none") {
			return nil, fmt.Errorf("%s: how is it made?", r.name)
		}
		if r.since, err = strconv.Atoi(f[3]); err != nil && f[3] != "-" {
			return nil, fmt.Errorf("%s: since when?", r.name)
		}
		r.base = cudaBase(r.name)
		for _, p := range f[4:] {
			switch p {
			case "work":
				r.work = true
			case "blocks":
				r.blocks = true
			case "ptsz":
				r.ptsz = true
			case "ptds":
				r.ptds = true
			default:
				kind := strings.TrimLeft(p, ">?")
				_, word := cudaTypes[kind]
				bytes := strings.HasPrefix(kind, "in:") || strings.HasPrefix(p, ">out:")
				if !word && !bytes && !slices.Contains(cudaHandles, kind) {
					return nil, fmt.Errorf("%s: there is no kind of parameter %q", r.name, p)
				}
				r.params = append(r.params, p)
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// own is the form whose default stream is the thread's.
func (r cudaRow) own() string {
	switch {
	case r.ptsz:
		return r.name + "_ptsz"
	case r.ptds:
		return r.name + "_ptds"
	}
	return r.name
}

// cudaBase is a function's name without its version.
func cudaBase(name string) string {
	i := strings.LastIndex(name, "_v")
	if i < 0 {
		return name
	}
	if _, err := strconv.Atoi(name[i+2:]); err != nil {
		return name
	}
	return name[:i]
}

const madeCUDA = "/* Made from shim/cuda.table by shim/gen; not to be edited. */\n"

func cudaOp(r cudaRow) string { return "OP_" + strings.TrimPrefix(r.name, "cu") }

func cudaStubs(rows []cudaRow) string {
	var b strings.Builder
	b.WriteString(madeCUDA + "enum {\n")
	for _, r := range rows {
		if r.number > 0 {
			fmt.Fprintf(&b, "  %s = %d,\n", cudaOp(r), r.number)
		}
	}
	b.WriteString("};\nenum {\n")
	for i, h := range cudaHandles {
		fmt.Fprintf(&b, "  YR_%s = %d,\n", strings.ToUpper(h), i+1)
	}
	b.WriteString("};\n\n#ifdef YR_STUBS\n")
	for _, r := range rows {
		switch r.how {
		case "stub", "post", "send", "inner":
			b.WriteString(cudaStub(r))
		case "none":
			fmt.Fprintf(&b, "EXPORT CUresult %s(void) { return CUDA_ERROR_NOT_SUPPORTED; }\n", r.name)
			if own := r.own(); own != r.name {
				fmt.Fprintf(&b, "EXPORT CUresult %s(void) { return CUDA_ERROR_NOT_SUPPORTED; }\n", own)
			}
		}
	}
	b.WriteString("#elif !defined YR_NAMES\n")
	for _, r := range rows {
		switch r.how {
		case "inner":
			fmt.Fprintf(&b, "CUresult yr_%s(%s);\n", r.name, strings.Join(cudaParams(r), ", "))
		case "stub", "post", "send":
			fmt.Fprintf(&b, "CUresult %s(%s);\n", r.name, strings.Join(cudaParams(r), ", "))
		}
	}
	b.WriteString("#endif\n\n/* X(base, symbol, since, its form whose default stream is the thread's) of each function. */\n#define YR_FUNCTIONS(X)")
	for _, r := range rows {
		if r.how != "op" {
			fmt.Fprintf(&b, " \\\n  X(%s, %s, %d, %s)", r.base, r.name, r.since, r.own())
		}
	}
	b.WriteString("\n")
	return b.String()
}

// cudaParams are a function's parameters in C.
func cudaParams(r cudaRow) []string {
	var all []string
	for i, p := range r.params {
		kind := strings.TrimLeft(p, ">?")
		t, ok := cudaTypes[kind]
		switch {
		case strings.HasPrefix(kind, "in:"):
			t = "const void *"
		case strings.HasPrefix(kind, "out:"):
			all = append(all, fmt.Sprintf("void *a%d", i))
			continue
		case kind == "mem":
			t = "uint64_t"
		case !ok:
			t = "CU" + kind
		}
		if p != kind {
			t += " *"
		}
		all = append(all, strings.TrimSuffix(t+" ", "* ")+strings.Repeat("*", strings.Count(t, "*"))+fmt.Sprintf("a%d", i))
	}
	if len(all) == 0 {
		all = append(all, "void")
	}
	return all
}

// cudaStub is the client's function: it writes the message, ends it, and gives
// back what the answer has: two words in its head, the others behind it.
func cudaStub(r cudaRow) string {
	var b strings.Builder
	params, symbol, how := cudaParams(r), r.name, "EXPORT CUresult"
	if r.how == "inner" {
		symbol, how = "yr_"+r.name, "CUresult"
	}
	fmt.Fprintf(&b, "%s %s(%s) {\n  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;\n", how, symbol, strings.Join(params, ", "))
	var message, give []string
	words := 0
	for i, p := range r.params {
		kind, a := strings.TrimLeft(p, ">?"), fmt.Sprintf("a%d", i)
		n, size, _ := strings.Cut(kind, ":")
		switch {
		case p == "dev":
			fmt.Fprintf(&b, "  if (%s) return CUDA_ERROR_INVALID_DEVICE;\n", a)
		case p == "text":
			fmt.Fprintf(&b, "  if (!%s) return CUDA_ERROR_INVALID_VALUE;\n", a)
			message = append(message, fmt.Sprintf("yp_bytes(%s, strlen(%s) + 1);", a, a))
		case n == "in":
			fmt.Fprintf(&b, "  if (!%s) return CUDA_ERROR_INVALID_VALUE;\n", a)
			message = append(message, fmt.Sprintf("yp_bytes(%s, %s);", a, size))
		case p[0] == '>' || p[0] == '?':
			if p[0] == '>' {
				fmt.Fprintf(&b, "  if (!%s) return CUDA_ERROR_INVALID_VALUE;\n", a)
			}
			if n == "out" {
				give = append(give, fmt.Sprintf("yr_bytes(&a, %s, %s);", a, size))
				continue
			}
			get := fmt.Sprintf("yr_out(&a, %d)", words)
			wanted := map[bool]string{true: "if (" + a + ") "}[p[0] == '?']
			if _, word := cudaTypes[kind]; word || kind == "mem" {
				give = append(give, fmt.Sprintf("%s*%s = (__typeof__(*%s))%s;", wanted, a, a, get))
			} else {
				give = append(give, fmt.Sprintf("%s*%s = (void *)(uintptr_t)%s;", wanted, a, get))
			}
			words++
		case cudaTypes[kind] != "" || kind == "mem":
			message = append(message, fmt.Sprintf("yp_word((uint64_t)%s);", a))
		default:
			message = append(message, fmt.Sprintf("yp_word((uint64_t)(uintptr_t)%s);", a))
		}
	}
	fmt.Fprintf(&b, "  yr_begin(%s);\n", cudaOp(r))
	for _, m := range message {
		b.WriteString("  " + m + "\n")
	}
	switch {
	case r.how == "send":
		fmt.Fprintf(&b, "  return yr_send((uint64_t)(uintptr_t)a0, YR_%s);\n}\n", strings.ToUpper(r.params[0]))
	case r.how == "post" || r.how == "inner" && len(give) == 0 && r.work:
		b.WriteString("  return yr_end();\n}\n")
	case len(give) == 0:
		b.WriteString("  return yr_sync(NULL);\n}\n")
	default:
		b.WriteString("  answer a = {.land = NULL};\n  CUresult r = yr_sync(&a);\n  if (!r) {\n")
		for _, g := range give {
			b.WriteString("    " + g + "\n")
		}
		b.WriteString("  }\n  free(a.data);\n  return r;\n}\n")
	}
	if r.ptsz && r.how != "inner" {
		var args []string
		for i, p := range r.params {
			a := fmt.Sprintf("a%d", i)
			if p == "stream" && !slices.Contains(r.params[:i], "stream") {
				a = "yr_own(" + a + ")"
			}
			args = append(args, a)
		}
		fmt.Fprintf(&b, "EXPORT CUresult %s_ptsz(%s) { return %s(%s); }\n", r.name, strings.Join(params, ", "), r.name, strings.Join(args, ", "))
	}
	return b.String()
}

func cudaTable(rows []cudaRow) string {
	var b strings.Builder
	b.WriteString("// Code generated by shim/gen from shim/cuda.table. DO NOT EDIT.\n\npackage wire\n\n// The calls of CUDA that cross the wire.\nconst (\n")
	for _, r := range rows {
		if r.number > 0 {
			fmt.Fprintf(&b, "\t%s Op = %d\n", cudaGoName(r), r.number)
		}
	}
	b.WriteString(")\n\n// The kinds of CUDA's objects.\nconst (\n")
	for i, h := range cudaHandles {
		fmt.Fprintf(&b, "\tCUDA%s Object = %d\n", strings.ToUpper(h[:1])+h[1:], i+1)
	}
	b.WriteString(")\n\n// CUDACalls are those that the worker calls by their parameters.\nvar CUDACalls = map[Op]CUDACall{\n")
	for _, r := range rows {
		if r.number == 0 || r.how == "op" {
			continue
		}
		var params []string
		for _, p := range r.params {
			params = append(params, cudaParam(p))
		}
		fmt.Fprintf(&b, "\t%s: {Name: %q, Work: %v, Blocks: %v, Params: []CUDAParam{%s}},\n", cudaGoName(r), r.name, r.work, r.blocks, strings.Join(params, ", "))
	}
	b.WriteString("}\n\n// cudaOps are the numbers there are.\nvar cudaOps = []string{\n")
	for _, r := range rows {
		if r.number > 0 {
			fmt.Fprintf(&b, "\t%s: %q,\n", cudaGoName(r), r.name)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

func cudaParam(p string) string {
	kind := strings.TrimLeft(p, ">?")
	n, size, _ := strings.Cut(kind, ":")
	form := "FormWord"
	more := ""
	switch {
	case p == "dev":
		form = "FormDevice"
	case p == "text":
		form = "FormText"
	case n == "in":
		form, more = "FormIn", ", Bytes: "+size
	case n == "out":
		form, more = "FormOut", ", Bytes: "+size
	case p != kind && cudaTypes[kind] != "":
		form = "FormOutWord"
	case cudaTypes[kind] != "":
	default:
		if form = "FormHandle"; p != kind {
			form = "FormOutHandle"
		}
		more = ", Object: CUDA" + strings.ToUpper(kind[:1]) + kind[1:]
	}
	return "{Form: " + form + more + "}"
}

func cudaGoName(r cudaRow) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(r.name, "cu"), "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return "CUDA" + b.String()
}
