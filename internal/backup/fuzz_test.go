package backup

import "testing"

// A snapshot may come from anywhere: what it names lies below its folder.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"format":1,"files":[{"path":"yunhe.db","size":1,"chunks":["00"]}]}`, `{"format":1,"files":[{"path":"../x"}]}`,
		`{"format":1,"files":[{"path":"/etc/passwd"}]}`, `{"format":1,"files":[{"path":"a","size":-1}]}`, `[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := decode(body)
		if err != nil {
			return
		}
		for _, file := range s.Files {
			if file.Path == "" || file.Path[0] == '/' || file.Size < 0 {
				t.Fatalf("a file %+v was accepted", file)
			}
			for _, c := range file.Chunks {
				if len(c) != 64 {
					t.Fatalf("a chunk %q was accepted", c)
				}
			}
		}
	})
}
