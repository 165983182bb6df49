package identifier_test

import (
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory/identifier"
)

func form() identifier.Form {
	return identifier.Form{
		City: "520100", Industry: "I65", Enterprise: "91350100M000100Y43", ResourceType: "IC", DataCenter: "GUIAN01", ServiceType: "CL",
		Capability: "H989T", Storage: "80G", Network: "R400G", ChipType: "GPU", ChipNumber: "SN1650324012345",
	}
}

func TestIdentifier(t *testing.T) {
	t.Parallel()
	f := form()
	var c core.Check
	f.Check(&c, "form.")
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	s := f.String()
	if want := "CI1-520100-I65-91350100M000100Y43-IC-GUIAN01-CL-H989T-80G-R400G-GPU-SN1650324012345-"; !strings.HasPrefix(s, want) || len(s) != len(want)+2 {
		t.Errorf("identifier = %s, want %s and two check characters", s, want)
	}
	if got, problem := identifier.Parse(s); problem != "" || got != f {
		t.Errorf("read back: %+v, %q", got, problem)
	}
	if got := identifier.Clean(" " + strings.ToLower(s) + "\n"); got != s {
		t.Errorf("typed in lower case = %s", got)
	}
}

// The example of ISO 7064 for MOD 1271-36: ISO79 has the check characters 3W.
func TestCheckCharacters(t *testing.T) {
	t.Parallel()
	if got := identifier.CheckCharacters("ISO79"); got != "3W" {
		t.Errorf("check characters of ISO79 = %s, want 3W", got)
	}
}

// Any one character changed and any two neighbors swapped are noticed.
func TestMistakesAreNoticed(t *testing.T) {
	t.Parallel()
	s := form().String()
	const all = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-"
	for i := range s {
		for _, r := range all {
			typo := s[:i] + string(r) + s[i+1:]
			if _, problem := identifier.Parse(typo); typo != s && problem == "" {
				t.Errorf("%s is taken for an identifier", typo)
			}
		}
		if i > 0 && s[i] != s[i-1] {
			swapped := s[:i-1] + string(s[i]) + string(s[i-1]) + s[i+1:]
			if _, problem := identifier.Parse(swapped); problem == "" {
				t.Errorf("%s is taken for an identifier", swapped)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		field  string
		change func(f *identifier.Form, v string)
		good   []string
		bad    []string
	}{
		{"city", func(f *identifier.Form, v string) { f.City = v }, []string{"110108", "820000"}, []string{"", "990000", "5201", "5201000", "52010a"}},
		{"industry", func(f *identifier.Form, v string) { f.Industry = v }, []string{"A01", "T9600"}, []string{"I6", "U65", "65", "i65"}},
		{"enterprise", func(f *identifier.Form, v string) { f.Enterprise = v }, []string{"91350100M000100Y43"}, []string{"91350100M000100Y44", "91350100M000100Y4", "9I350100M000100Y43"}},
		{"resource_type", func(f *identifier.Form, v string) { f.ResourceType = v }, []string{"GC", "IC", "SC", "QC"}, []string{"XX", "ic"}},
		{"data_center", func(f *identifier.Form, v string) { f.DataCenter = v }, []string{"A", "ABCDEFGHIJ12"}, []string{"A-1", "ABCDEFGHIJ123", "贵安"}},
		{"service_type", func(f *identifier.Form, v string) { f.ServiceType = v }, []string{"BM", "CN", "PX"}, []string{"VM"}},
		{"compute_capability", func(f *identifier.Form, v string) { f.Capability = v }, []string{"0", "D67T", "I1979T", "S1P", "B1001G"}, []string{"H", "HT", "H0T", "H01T", "H1000T", "X1T", "H1", "H1.5T", "H1234567890P"}},
		{"storage_capacity", func(f *identifier.Form, v string) { f.Storage = v }, []string{"0", "80G", "2000P", "1T"}, []string{"2000T", "80", "G", "00"}},
		{"network_configuration", func(f *identifier.Form, v string) { f.Network = v }, []string{"0", "E25G", "L100M", "I1001M"}, []string{"400G", "X1G", "E1000M"}},
		{"chip_type", func(f *identifier.Form, v string) { f.ChipType = v }, []string{"CPU", "FPGA"}, []string{"H800"}},
		{"chip_number", func(f *identifier.Form, v string) { f.ChipNumber = v }, []string{"1", strings.Repeat("Z", 32)}, []string{"a", strings.Repeat("Z", 33)}},
	} {
		check := func(v string) error {
			f := form()
			x.change(&f, v)
			var c core.Check
			f.Check(&c, "form.")
			if c.Err() == nil {
				if got, problem := identifier.Parse(f.String()); problem != "" || got != f {
					t.Errorf("%s %q: %s reads as %+v, %s", x.field, v, f, got, problem)
				}
			}
			return c.Err()
		}
		for _, v := range x.good {
			if err := check(v); err != nil {
				t.Errorf("%s %q: %v", x.field, v, err)
			}
		}
		for _, v := range x.bad {
			if fs := fault.FieldsOf(check(v)); len(fs) != 1 || fs[0].Path != "form."+x.field {
				t.Errorf("%s %q is refused with %v, want one violation there", x.field, v, fs)
			}
		}
	}
}

func TestParseRejects(t *testing.T) {
	t.Parallel()
	s := form().String()
	for in, want := range map[string]string{
		"": "begin with", "CI2" + s[3:]: "begin with", "CI1-1": "13 parts", s + "-A": "13 parts", strings.ToLower(s): "begin with",
		strings.Replace(s, "GUIAN", "GUI?N", 1): "of A-Z", s[:len(s)-2] + "00": "check characters", strings.Repeat("A", 161): "at most 160 characters, got 161",
	} {
		if _, problem := identifier.Parse(in); !strings.Contains(problem, want) {
			t.Errorf("%q: %q, want it to say %q", in, problem, want)
		}
	}
}

func TestAmount(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		n    int64
		want string
	}{{0, "0"}, {-5, "0"}, {1, "H1G"}, {989_000, "H989T"}, {1_000_000, "H1P"}, {5_000_000_000, "H5000P"}, {999_999_999_999, "0"}, {1001, "H1001G"}} {
		if got := identifier.Amount("H", x.n, "GTP"); got != x.want {
			t.Errorf("Amount(%d) = %s, want %s", x.n, got, x.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(form().String())
	f.Add("CI1-520100-I65-x-IC-A-CL-0-0-0-GPU-1-00")
	f.Fuzz(func(t *testing.T, s string) {
		if got, problem := identifier.Parse(s); problem == "" {
			var c core.Check
			if got.Check(&c, ""); c.Err() != nil || got.String() != s {
				t.Errorf("%q reads as %+v (%v), which is written %s", s, got, c.Err(), got)
			}
		}
	})
}
