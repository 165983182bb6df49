// Package jobfile reads job files: what a person writes to ask for a job, as
// JSON or YAML.
//
// # Shapes
//
// A job is an object with the members of yunhe.jobs.v1.JobSpec, each under its
// lowerCamel name (imageId) or its snake_case name (image_id). The create-job
// body of T/AI 123.6, A.1 is such an object; its tasks may also be an object
// whose members task1 to taskN are the tasks in numeric order. Enumerations
// are written in full or short ("all"), whole numbers also in quotes. A file
// of a task takes its bytes from one of
//
//	content   base64, as in the API
//	text      the text itself
//	local     a path in the folder of the job file (or below); the path in the
//	          working directory defaults to its last element, executable to
//	          the mode of the local file
//
// Several YAML documents, several JSON values or a list are a batch, in order.
//
// # What it keeps true
//
// A file is read whole or refused: a member nobody knows, one given twice and
// a value of the wrong kind are errors that name the line, the member as the
// writer wrote it and, for a near miss, the name that was probably meant. So
// nothing a writer asked for is lost silently. Limits on values (lengths,
// counts, names) are the server's; only what protects this process is
// enforced here: [MaxBytes], [MaxDepth], [MaxValues]. A local file outside the
// job file's folder is refused, so that a job file from somewhere else cannot
// make its reader send other files of theirs.
package jobfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/fault"
)

// Limits of a job file.
const (
	// MaxBytes is the size of a job file and of all local files it names.
	MaxBytes = 16 << 20
	// MaxDepth is how deep values may lie in each other; a job needs six.
	MaxDepth = 64
	// MaxValues is the number of values, YAML aliases expanded: a batch of 5000
	// jobs has some 150,000.
	MaxValues = 1_000_000
)

// Jobs is the content of a job file.
type Jobs struct {
	Specs []*jobsv1.JobSpec
	// Batch is true if the file was a list or had several documents, even if
	// only one job is in it.
	Batch bool
}

// Read reads the job file at path, or stdin if path is "-"; local files of a
// job from stdin are looked for in the current folder. It returns
// fault.NotFound if the file does not exist and what [Parse] returns.
func Read(path string, stdin io.Reader) (*Jobs, error) {
	name, folder := path, filepath.Dir(path)
	var data []byte
	var err error
	if path == "-" {
		name, folder = "stdin", "."
		data, err = io.ReadAll(io.LimitReader(stdin, MaxBytes+1))
	} else {
		data, err = readFile(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(fault.NotFound, err, "no file %s", path)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "cannot read %s", name)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "cannot open folder %s", folder)
	}
	defer root.Close()
	return Parse(name, data, root.FS())
}

// Decode reads the file at path, or stdin if it is "-", which holds one
// document, such as a policy, into m. The errors are those of [Read].
func Decode(path string, stdin io.Reader, m proto.Message) error {
	name := path
	var data []byte
	var err error
	if path == "-" {
		name = "stdin"
		data, err = io.ReadAll(io.LimitReader(stdin, MaxBytes+1))
	} else {
		data, err = readFile(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.NotFound, err, "no file %s", path)
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "cannot read %s", name)
	}
	return DecodeBytes(name, data, m)
}

// DecodeBytes is [Decode] of a file's bytes; name is what errors call it.
func DecodeBytes(name string, data []byte, m proto.Message) error {
	if len(data) > MaxBytes {
		return fault.New(fault.TooLarge, "%s: larger than %d MiB", name, MaxBytes>>20)
	}
	docs, err := parseDocuments(name, data)
	if err != nil {
		return locate(name, err)
	}
	if len(docs) != 1 {
		return fault.New(fault.Invalid, "%s: holds %d documents, want one", name, len(docs))
	}
	d := decoder{room: MaxBytes}
	if err := d.message(docs[0], "", m.ProtoReflect()); err != nil {
		return locate(name, err)
	}
	return nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxBytes+1))
}

// Parse reads a job file's bytes; name is what errors call it, folder is where
// its local files are (nil: it may name none). The specs are complete in
// structure but not validated against the server's limits. It returns
// fault.TooLarge beyond [MaxBytes] and fault.Invalid for everything else,
// naming line and member.
func Parse(name string, data []byte, folder fs.FS) (*Jobs, error) {
	if len(data) > MaxBytes {
		return nil, fault.New(fault.TooLarge, "%s: larger than %d MiB, the limit of a job file", name, MaxBytes>>20)
	}
	docs, err := parseDocuments(name, data)
	if err != nil {
		return nil, locate(name, err)
	}
	jobs := &Jobs{Batch: len(docs) > 1}
	d := decoder{folder: folder, room: MaxBytes}
	for i, doc := range docs {
		members := []*value{doc}
		where := func(int) string { return "" }
		switch {
		case doc.kind == list:
			jobs.Batch = true
			members = doc.items
			where = func(j int) string { return fmt.Sprintf("[%d]", j) }
			if len(docs) > 1 {
				where = func(j int) string { return fmt.Sprintf("document %d: [%d]", i+1, j) }
			}
		case len(docs) > 1:
			where = func(int) string { return fmt.Sprintf("document %d", i+1) }
		}
		for j, m := range members {
			spec := &jobsv1.JobSpec{}
			if err := d.job(m, where(j), spec); err != nil {
				return nil, locate(name, err)
			}
			jobs.Specs = append(jobs.Specs, spec)
		}
	}
	if len(jobs.Specs) == 0 {
		return nil, fault.New(fault.Invalid, "%s: holds no job", name)
	}
	return jobs, nil
}

// problem is what is wrong with a job file, and where.
type problem struct {
	line int    // from 1; 0: not known
	path string // as the writer wrote it
	text string
}

func (p *problem) Error() string {
	if p.path == "" {
		return p.text
	}
	return p.path + ": " + p.text
}

// locate makes err a fault that names the file and the line.
func locate(name string, err error) error {
	var p *problem
	if !errors.As(err, &p) {
		return fault.Wrap(fault.Invalid, err, "%s", name)
	}
	where := name
	if p.line > 0 {
		where = fmt.Sprintf("%s:%d", name, p.line)
	}
	e := &fault.Error{Kind: fault.Invalid, Message: where + ": " + p.Error()}
	if p.path != "" {
		e.Fields = []fault.Field{{Path: p.path, Problem: p.text}}
	}
	return e
}

// parseDocuments splits data into documents. What begins like JSON is read as
// JSON, with its errors; everything else is YAML, and so is what begins like
// JSON but is YAML's notation of the same look.
func parseDocuments(name string, data []byte) ([]*value, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, &problem{text: "holds no job"}
	}
	if first := bytes.TrimSpace(data)[0]; first == '{' || first == '[' {
		docs, err := parseJSON(data)
		ext := strings.ToLower(filepath.Ext(name))
		if err == nil || (looksLikeJSON(data) && ext != ".yaml" && ext != ".yml") {
			return docs, err
		}
	}
	return parseYAML(data)
}

// looksLikeJSON tells JSON with a mistake from YAML's flow notation: after the
// opening bracket JSON has a quote or another bracket.
func looksLikeJSON(data []byte) bool {
	rest := bytes.TrimSpace(bytes.TrimLeft(bytes.TrimSpace(data), "{["))
	return len(rest) == 0 || bytes.IndexByte([]byte(`"{}[]`), rest[0]) >= 0
}
