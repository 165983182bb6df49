package jobfile

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
)

// decoder fills messages from values, driven by the messages' own
// description: a field added to the API is known here without a change.
type decoder struct {
	folder fs.FS
	room   int // bytes of local files that may still be read
}

func (d *decoder) job(v *value, at string, spec *jobsv1.JobSpec) error {
	return d.message(v, at, spec.ProtoReflect())
}

var (
	taskName = (&jobsv1.Task{}).ProtoReflect().Descriptor().FullName()
	fileName = (&jobsv1.File{}).ProtoReflect().Descriptor().FullName()
)

// Members of a file that are not fields of the API.
const (
	textMember  = "text"
	localMember = "local"
)

func (d *decoder) message(v *value, at string, m protoreflect.Message) error {
	if ts, ok := m.Interface().(*timestamppb.Timestamp); ok {
		t, err := time.Parse(time.RFC3339Nano, v.text)
		if v.kind != text || err != nil {
			return &problem{v.line, at, fmt.Sprintf("want a time such as \"2030-01-31T08:00:00Z\", got %s", v.describe())}
		}
		proto.Merge(ts, timestamppb.New(t))
		return nil
	}
	if v.kind != object {
		return &problem{v.line, at, fmt.Sprintf("want an object, got %s", v.describe())}
	}
	var extra []member
	set := map[protoreflect.Name]string{}
	for _, mem := range v.members {
		where := join(at, mem.name)
		field := lookup(m.Descriptor(), mem.name)
		if field == nil && m.Descriptor().FullName() == fileName && (mem.name == textMember || mem.name == localMember) {
			extra = append(extra, mem)
			continue
		}
		if field == nil {
			return unknown(m.Descriptor(), mem, where)
		}
		if other, twice := set[field.Name()]; twice {
			return &problem{mem.line, where, fmt.Sprintf("is the same as %q, which is given too", other)}
		}
		set[field.Name()] = mem.name
		if err := d.field(mem.value, where, m, field); err != nil {
			return err
		}
	}
	if file, ok := m.Interface().(*jobsv1.File); ok {
		return d.fileContent(v, at, file, extra, set)
	}
	return nil
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// lookup finds a field by its lowerCamel or snake_case name.
func lookup(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := md.Fields().ByJSONName(name); f != nil {
		return f
	}
	return md.Fields().ByName(protoreflect.Name(name))
}

func unknown(md protoreflect.MessageDescriptor, mem member, where string) error {
	var names []string
	for i := range md.Fields().Len() {
		names = append(names, md.Fields().Get(i).JSONName())
	}
	if md.FullName() == fileName {
		names = append(names, textMember, localMember)
	}
	slices.Sort(names)
	if near := nearest(mem.name, names); near != "" {
		return &problem{mem.line, where, fmt.Sprintf("unknown field; did you mean %q?", near)}
	}
	return &problem{mem.line, where, "unknown field; known are " + strings.Join(names, ", ")}
}

func (d *decoder) field(v *value, at string, m protoreflect.Message, f protoreflect.FieldDescriptor) error {
	if v.kind == null {
		return nil // as in the API's JSON: null is the same as left out
	}
	switch {
	case f.IsMap():
		return d.mapField(v, at, m.Mutable(f).Map(), f)
	case f.IsList():
		return d.listField(v, at, m.Mutable(f).List(), f)
	case f.Message() != nil:
		return d.message(v, at, m.Mutable(f).Message())
	}
	pv, err := scalar(v, at, f)
	if err == nil {
		m.Set(f, pv)
	}
	return err
}

func (d *decoder) mapField(v *value, at string, m protoreflect.Map, f protoreflect.FieldDescriptor) error {
	if v.kind != object {
		return &problem{v.line, at, fmt.Sprintf("want an object, got %s", v.describe())}
	}
	for _, mem := range v.members {
		item := *mem.value
		// Environment variables and labels are text that often looks like a
		// number; it is kept as written.
		if f.MapValue().Kind() == protoreflect.StringKind && (item.kind == number || item.kind == boolean) {
			item.kind = text
		}
		pv, err := scalar(&item, join(at, mem.name), f.MapValue())
		if err != nil {
			return err
		}
		m.Set(protoreflect.ValueOfString(mem.name).MapKey(), pv)
	}
	return nil
}

func (d *decoder) listField(v *value, at string, l protoreflect.List, f protoreflect.FieldDescriptor) error {
	items, where := v.items, func(i int) string { return fmt.Sprintf("%s[%d]", at, i) }
	switch {
	case v.kind == list:
	case v.kind == object && f.Message() != nil && f.Message().FullName() == taskName:
		members, err := numbered(v, at)
		if err != nil {
			return err
		}
		items = nil
		for _, m := range members {
			items = append(items, m.value)
		}
		where = func(i int) string { return join(at, members[i].name) }
	default:
		return &problem{v.line, at, fmt.Sprintf("want a list, got %s", v.describe())}
	}
	for i, item := range items {
		if f.Message() != nil {
			if err := d.message(item, where(i), l.AppendMutable().Message()); err != nil {
				return err
			}
			continue
		}
		pv, err := scalar(item, where(i), f)
		if err != nil {
			return err
		}
		l.Append(pv)
	}
	return nil
}

var taskMember = regexp.MustCompile(`^task([1-9][0-9]{0,8})$`)

// numbered returns the members task1…taskN of v in numeric order.
func numbered(v *value, at string) ([]member, error) {
	index := func(m member) int {
		n, _ := strconv.Atoi(strings.TrimPrefix(m.name, "task")) // matched below
		return n
	}
	for _, m := range v.members {
		if !taskMember.MatchString(m.name) {
			return nil, &problem{m.line, join(at, m.name), "tasks as an object has members task1 to taskN only; or write a list"}
		}
	}
	members := slices.Clone(v.members)
	slices.SortFunc(members, func(a, b member) int { return index(a) - index(b) })
	for i, m := range members {
		if index(m) != i+1 {
			return nil, &problem{m.line, at, fmt.Sprintf("has %s but no task%d", m.name, i+1)}
		}
	}
	return members, nil
}

func scalar(v *value, at string, f protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	want := func(what string) (protoreflect.Value, error) {
		return protoreflect.Value{}, &problem{v.line, at, fmt.Sprintf("want %s, got %s", what, v.describe())}
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		if v.kind == number || v.kind == boolean {
			return want("text in quotes")
		}
		if v.kind != text {
			return want("text")
		}
		return protoreflect.ValueOfString(v.text), nil
	case protoreflect.BytesKind:
		b, err := base64Any(v.text)
		if v.kind != text || err != nil {
			return want("base64 (for plain text use text, for a file local)")
		}
		return protoreflect.ValueOfBytes(b), nil
	case protoreflect.BoolKind:
		switch {
		case v.kind == boolean:
			return protoreflect.ValueOfBool(strings.EqualFold(v.text, "true")), nil
		default:
			return want("true or false")
		}
	case protoreflect.Int32Kind:
		if n, ok := whole(v, 32); ok {
			return protoreflect.ValueOfInt32(int32(n)), nil
		}
		return want("a whole number of at most 32 bits")
	case protoreflect.Int64Kind:
		if n, ok := whole(v, 64); ok {
			return protoreflect.ValueOfInt64(n), nil
		}
		return want("a whole number of at most 64 bits")
	case protoreflect.EnumKind:
		return enum(v, at, f.Enum())
	}
	return protoreflect.Value{}, &problem{v.line, at, fmt.Sprintf("fields of kind %s cannot be written in a job file", f.Kind())}
}

func base64Any(s string) ([]byte, error) {
	s = strings.Map(func(r rune) rune {
		switch r {
		case '-':
			return '+'
		case '_':
			return '/'
		case '\n', '\r', ' ', '=':
			return -1
		}
		return r
	}, s)
	return base64.RawStdEncoding.DecodeString(s)
}

var decimal = regexp.MustCompile(`^[+-]?[0-9]{1,20}(\.0{1,20})?([eE][+]?[0-9]{1,2})?$`)

// whole reads a whole number, in quotes or not, also when written 1e3 or 2.0.
func whole(v *value, bits int) (int64, bool) {
	if v.kind != number && v.kind != text {
		return 0, false
	}
	if n, err := strconv.ParseInt(v.text, 10, bits); err == nil {
		return n, true
	}
	if v.kind == number {
		// YAML's other notations: 0x1f, 0o17, 1_000.
		if n, err := strconv.ParseInt(v.text, 0, bits); err == nil {
			return n, true
		}
	}
	if !decimal.MatchString(v.text) {
		return 0, false
	}
	r, ok := new(big.Rat).SetString(v.text)
	if !ok || !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	n := r.Num().Int64()
	return n, bits == 64 || int64(int32(n)) == n
}

// enum reads SUCCESS_POLICY_ALL, all, ALL or 1.
func enum(v *value, at string, ed protoreflect.EnumDescriptor) (protoreflect.Value, error) {
	prefix := strings.TrimSuffix(string(ed.Values().Get(0).Name()), "UNSPECIFIED")
	var short []string
	for i := range ed.Values().Len() {
		e := ed.Values().Get(i)
		name := strings.TrimPrefix(string(e.Name()), prefix)
		if v.kind == text && (v.text == string(e.Name()) || strings.EqualFold(v.text, name)) {
			return protoreflect.ValueOfEnum(e.Number()), nil
		}
		if n, ok := whole(v, 32); ok && v.kind == number && n == int64(e.Number()) {
			return protoreflect.ValueOfEnum(e.Number()), nil
		}
		if e.Number() != 0 {
			short = append(short, strings.ToLower(name))
		}
	}
	return protoreflect.Value{}, &problem{v.line, at, fmt.Sprintf("want one of %s, got %s", strings.Join(short, ", "), v.describe())}
}

// fileContent fills a file from its text or local member.
func (d *decoder) fileContent(v *value, at string, file *jobsv1.File, extra []member, set map[protoreflect.Name]string) error {
	sources := len(extra)
	if _, ok := set["content"]; ok {
		sources++
	}
	if sources > 1 {
		return &problem{v.line, at, "takes one of content, text and local"}
	}
	if len(extra) == 0 {
		return nil
	}
	mem := extra[0]
	where := join(at, mem.name)
	if mem.value.kind != text {
		return &problem{mem.line, where, fmt.Sprintf("want text, got %s", mem.value.describe())}
	}
	if mem.name == textMember {
		file.Content = []byte(mem.value.text)
		return nil
	}
	content, mode, err := d.local(mem.value.text)
	if err != nil {
		return &problem{mem.line, where, err.Error()}
	}
	file.Content = content
	if _, ok := set["path"]; !ok {
		file.Path = path.Base(mem.value.text)
	}
	if _, ok := set["executable"]; !ok {
		file.Executable = mode&0o111 != 0
	}
	return nil
}

// local reads a file of the job file's folder.
func (d *decoder) local(name string) ([]byte, fs.FileMode, error) {
	clean := path.Clean(name)
	if d.folder == nil || !fs.ValidPath(clean) || clean == "." {
		return nil, 0, fmt.Errorf("%q is not a file in the folder of the job file", name)
	}
	// Looked at before it is opened: opening a pipe would wait for its writer.
	info, err := fs.Stat(d.folder, clean)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read %q: %w", name, cause(err))
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%q is not a regular file", name)
	}
	f, err := d.folder.Open(clean)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read %q: %w", name, cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(d.room)+1))
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read %q: %w", name, cause(err))
	}
	if d.room -= len(data); d.room < 0 {
		return nil, 0, fmt.Errorf("the local files are larger than %d MiB in all", MaxBytes>>20)
	}
	return data, info.Mode(), nil
}

// cause strips the operation and the path, which the message names already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
