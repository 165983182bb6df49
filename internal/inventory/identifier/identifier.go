// Package identifier writes and reads compute identifiers: the coded identity
// of a compute resource, as regulators want it. The sources name its parts
// (city, industry, enterprise, resource type, data center, service type,
// computing capability, storage capacity, network configuration, chip type,
// unique chip number) and not their form; the form here is this project's.
//
//	CI1-520100-I65-91110108551385082Q-IC-GUIAN01-CL-H989T-80G-R400G-GPU-SN1650324012345-7K
//	│   city   │   enterprise         │  center   │  │     │   │     │   chip number     check
//	version    industry               type   service  │     │   │     chip type
//	                                         capability  storage network
//
// What it keeps true:
//
//   - One form has one identifier and one identifier has one form: what
//     [Parse] accepts, [Form.String] writes again, byte for byte. Amounts are
//     therefore written in the largest unit that is exact.
//   - The last two characters (ISO 7064, MOD 1271-36) change with any single
//     character and any swap of two neighbors, so that a typing mistake is
//     never taken for another identifier. The enterprise's own check character
//     (GB 32100) is verified too.
//
// It does no I/O and keeps nothing: whether an identifier was issued is for
// its issuer to say.
package identifier

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/core"
)

// version is the first segment; another form has another one.
const version = "CI1"

// MaxLength is more than any identifier has.
const MaxLength = 160

// NotStated stands for an amount that is left open.
const NotStated = "0"

// Form is what an identifier says, in the order of its segments.
type Form struct {
	City         string // six digits of GB/T 2260
	Industry     string // GB/T 4754
	Enterprise   string // unified social credit code
	ResourceType string // see ResourceTypes
	DataCenter   string
	ServiceType  string // see ServiceTypes
	Capability   string // precision, amount, unit; or NotStated
	Storage      string // amount, unit; or NotStated
	Network      string // kind, amount, unit; or NotStated
	ChipType     string // see ChipTypes
	ChipNumber   string
}

// Codes of the segments that are chosen from a list, with what they mean.
var (
	ResourceTypes = map[string]string{"GC": "general compute", "IC": "intelligent compute", "SC": "supercomputing", "QC": "quantum computing"}
	ServiceTypes  = map[string]string{"CL": "cloud resources", "BM": "bare compute", "CN": "cloud native", "PX": "supercomputing by proxy"}
	ChipTypes     = map[string]string{
		"CPU": "central processing unit", "GPU": "graphics processing unit", "NPU": "neural-network processing unit", "MLU": "machine learning processing unit",
		"DCU": "deep computing unit", "TPU": "tensor processing unit", "FPGA": "field-programmable gate array", "ASIC": "application-specific integrated circuit", "QPU": "quantum processing unit",
	}
	Precisions = map[string]string{"D": "fp64", "S": "fp32", "T": "tf32", "B": "bf16", "H": "fp16", "F": "fp8", "I": "int8"}
	Networks   = map[string]string{"E": "Ethernet", "R": "RoCE", "I": "InfiniBand", "L": "leased line", "D": "dedicated network", "P": "private network"}
)

// provinces are the first two digits of GB/T 2260.
var provinces = regexp.MustCompile(`^(1[1-5]|2[1-3]|3[1-7]|4[1-6]|5[0-4]|6[1-5]|71|8[12])[0-9]{4}$`)

var (
	industry   = regexp.MustCompile(`^[A-T][0-9]{2,4}$`)
	dataCenter = regexp.MustCompile(`^[A-Z0-9]{1,12}$`)
	chipNumber = regexp.MustCompile(`^[A-Z0-9]{1,32}$`)
	amount     = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)
)

// segment is a part of an identifier: its name in forms, where it is, and
// what is wrong with a value ("": nothing).
type segment struct {
	name    string
	of      func(f *Form) *string
	problem func(v string) string
}

var segments = []segment{
	{"city", func(f *Form) *string { return &f.City }, like(provinces, `must be six digits of GB/T 2260, such as 520100`)},
	{"industry", func(f *Form) *string { return &f.Industry }, like(industry, `must be a letter from A to T and two to four digits of GB/T 4754, such as I65`)},
	{"enterprise", func(f *Form) *string { return &f.Enterprise }, creditCode},
	{"resource_type", func(f *Form) *string { return &f.ResourceType }, oneOf(ResourceTypes)},
	{"data_center", func(f *Form) *string { return &f.DataCenter }, like(dataCenter, `must be 1 to 12 of A-Z and 0-9`)},
	{"service_type", func(f *Form) *string { return &f.ServiceType }, oneOf(ServiceTypes)},
	{"compute_capability", func(f *Form) *string { return &f.Capability }, measured(Precisions, "GTP", `such as H989T`)},
	{"storage_capacity", func(f *Form) *string { return &f.Storage }, measured(nil, "GTP", `such as 80G`)},
	{"network_configuration", func(f *Form) *string { return &f.Network }, measured(Networks, "MGT", `such as R400G`)},
	{"chip_type", func(f *Form) *string { return &f.ChipType }, oneOf(ChipTypes)},
	{"chip_number", func(f *Form) *string { return &f.ChipNumber }, like(chipNumber, `must be 1 to 32 of A-Z and 0-9`)},
}

func like(re *regexp.Regexp, problem string) func(string) string {
	return func(v string) string {
		if re.MatchString(v) {
			return ""
		}
		return problem
	}
}

func oneOf(codes map[string]string) func(string) string {
	return func(v string) string {
		if codes[v] != "" {
			return ""
		}
		return "must be one of " + list(codes)
	}
}

func list(codes map[string]string) string {
	var names []string
	for c := range codes {
		names = append(names, c)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// measured is for an amount in the largest unit that is exact, after a code
// if there are codes.
func measured(codes map[string]string, units, example string) func(string) string {
	bad := `must be 0 for "not stated", or `
	if codes != nil {
		bad += "one of " + list(codes) + ", "
	}
	bad += "an amount of 1 to 999999999 and a unit of " + strings.Join(strings.Split(units, ""), ", ") + ", " + example
	return func(v string) string {
		if v == NotStated {
			return ""
		}
		if codes != nil {
			if v == "" || codes[v[:1]] == "" {
				return bad
			}
			v = v[1:]
		}
		if len(v) < 2 || !strings.Contains(units, v[len(v)-1:]) || !amount.MatchString(v[:len(v)-1]) {
			return bad
		}
		if n, err := strconv.Atoi(v[:len(v)-1]); err == nil && n%1000 == 0 && v[len(v)-1] != units[len(units)-1] {
			return "must be in the largest unit that is exact: divide by 1000"
		}
		return ""
	}
}

// Check reports what is wrong with the form, each segment below path.
func (f Form) Check(c *core.Check, path string) {
	for _, s := range segments {
		v := *s.of(&f)
		if v == "" {
			c.Add(path+s.name, "is required")
		} else if p := s.problem(v); p != "" {
			c.Add(path+s.name, "%s, got %q", p, clip(v))
		}
	}
}

// String writes the identifier. The form must be one that Check accepts.
func (f Form) String() string {
	parts := []string{version}
	for _, s := range segments {
		parts = append(parts, *s.of(&f))
	}
	body := strings.Join(parts, "-")
	return body + "-" + checkCharacters(body)
}

// Clean brings what someone typed into the form identifiers have: upper-case,
// without the spaces around it.
func Clean(s string) string {
	return strings.ToUpper(strings.TrimSpace(s))
}

// Parse reads an identifier. problem says why it is none, "" if it is one.
func Parse(s string) (f Form, problem string) {
	if len(s) > MaxLength {
		return Form{}, "it must be at most " + strconv.Itoa(MaxLength) + " characters, got " + strconv.Itoa(len(s))
	}
	parts := strings.Split(s, "-")
	if parts[0] != version {
		return Form{}, "it must begin with " + version + "-"
	}
	if len(parts) != len(segments)+2 {
		return Form{}, "it must have " + strconv.Itoa(len(segments)+2) + " parts joined by hyphens, got " + strconv.Itoa(len(parts))
	}
	body, check := s[:strings.LastIndexByte(s, '-')], parts[len(parts)-1]
	if strings.Trim(strings.ReplaceAll(body, "-", ""), alphabet) != "" {
		return Form{}, "it must be of A-Z, 0-9 and hyphens"
	}
	if want := checkCharacters(body); check != want {
		return Form{}, "its check characters do not fit: some character is wrong"
	}
	for i, x := range segments {
		v := parts[i+1]
		if p := x.problem(v); p != "" {
			return Form{}, x.name + " " + p + ", got " + strconv.Quote(clip(v))
		}
		*x.of(&f) = v
	}
	return f, ""
}

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// checkCharacters computes the two of ISO 7064 MOD 1271-36 for the letters and
// digits of body, which must have no others than hyphens.
func checkCharacters(body string) string {
	const modulus, radix = 1271, 36
	p := 0
	for i := range len(body) {
		if body[i] != '-' {
			p = (p + strings.IndexByte(alphabet, body[i])) * radix % modulus
		}
	}
	// Two characters follow: their value brings the whole to 1.
	p = p * radix % modulus
	c := (modulus + 1 - p) % modulus
	return string([]byte{alphabet[c/radix], alphabet[c%radix]})
}

// creditCode checks a unified social credit code with its check character.
func creditCode(v string) string {
	const digits = "0123456789ABCDEFGHJKLMNPQRTUWXY" // GB 32100 leaves out I, O, S, V, Z
	const problem = "must be a unified social credit code of 18 characters"
	if len(v) != 18 {
		return problem
	}
	sum, weight := 0, 1
	for i := range 17 {
		d := strings.IndexByte(digits, v[i])
		if d < 0 {
			return problem
		}
		sum, weight = sum+d*weight, weight*3%31
	}
	if want := digits[(31-sum%31)%31]; v[17] != want {
		return problem + "; its check character does not fit"
	}
	return ""
}

// Amount writes n of the smallest of units in the largest unit that is exact;
// NotStated if it is less than one or has more than nine digits.
func Amount(code string, n int64, units string) string {
	if n < 1 {
		return NotStated
	}
	i := 0
	for i+1 < len(units) && n%1000 == 0 {
		n, i = n/1000, i+1
	}
	if n > 999_999_999 {
		return NotStated
	}
	return code + strconv.FormatInt(n, 10) + units[i:i+1]
}

func clip(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}
