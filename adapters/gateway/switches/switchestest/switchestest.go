// Package switchestest plays a switch: it answers SNMP on loopback with what a test
// sets.
package switchestest

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gosnmp/gosnmp"
)

// Community is what it wants to be asked with.
const Community = "secret"

// Agent answers.
type Agent struct {
	conn *net.UDPConn

	mu     sync.Mutex // guards the fields below
	values map[string]gosnmp.SnmpPDU
	silent bool
	noise  bool
}

// New returns one that answers until the test ends.
func New(t testing.TB) *Agent {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{conn: conn, values: map[string]gosnmp.SnmpPDU{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.serve()
	}()
	t.Cleanup(func() {
		_ = conn.Close() // it ends serve
		<-done
	})
	return a
}

// Set sets what an OID has: an int, a uint32 or uint64 that counts, or text.
func (a *Agent) Set(oid string, v any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := gosnmp.SnmpPDU{Name: oid, Value: v, Type: gosnmp.Integer}
	switch v.(type) {
	case string:
		p.Type = gosnmp.OctetString
	case uint64:
		p.Type = gosnmp.Counter64
	case uint32:
		p.Type = gosnmp.Counter32
	}
	a.values[oid] = p
}

// Delete takes an OID away.
func (a *Agent) Delete(oid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.values, oid)
}

// Silent has it answer nothing, Noise rubbish.
func (a *Agent) Silent(silent, noise bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.silent, a.noise = silent, noise
}

// Port sets an interface of 25 Gbit/s; states are 1 for up, 2 for down.
func (a *Agent) Port(index int, name string, admin, oper int) {
	i := "." + strconv.Itoa(index)
	a.Set(".1.3.6.1.2.1.2.2.1.3"+i, 6)
	a.Set(".1.3.6.1.2.1.31.1.1.1.1"+i, name)
	a.Set(".1.3.6.1.2.1.2.2.1.7"+i, admin)
	a.Set(".1.3.6.1.2.1.2.2.1.8"+i, oper)
	a.Set(".1.3.6.1.2.1.31.1.1.1.15"+i, 25_000)
}

// less orders OIDs by their numbers.
func less(a, b string) int {
	x, y := strings.Split(a[1:], "."), strings.Split(b[1:], ".")
	return slices.CompareFunc(x, y, func(m, n string) int {
		p, _ := strconv.Atoi(m)
		q, _ := strconv.Atoi(n)
		return p - q
	})
}

func (a *Agent) serve() {
	buf := make([]byte, 64<<10)
	dec := &gosnmp.GoSNMP{Version: gosnmp.Version2c, Community: Community}
	for {
		n, from, err := a.conn.ReadFromUDP(buf)
		if err != nil {
			return
		}
		req, err := dec.SnmpDecodePacket(buf[:n])
		a.mu.Lock()
		silent, noise := a.silent, a.noise
		a.mu.Unlock()
		if err != nil || req.Community != Community || silent {
			continue
		}
		if noise {
			_, _ = a.conn.WriteToUDP([]byte("\x30\x82\xff\xffrubbish"), from)
			continue
		}
		res := &gosnmp.SnmpPacket{Version: gosnmp.Version2c, Community: req.Community, PDUType: gosnmp.GetResponse, RequestID: req.RequestID, Variables: a.answer(req)}
		b, err := res.MarshalMsg()
		if err == nil {
			_, _ = a.conn.WriteToUDP(b, from)
		}
	}
}

func (a *Agent) answer(req *gosnmp.SnmpPacket) (out []gosnmp.SnmpPDU) {
	a.mu.Lock()
	defer a.mu.Unlock()
	oids := make([]string, 0, len(a.values))
	for oid := range a.values {
		oids = append(oids, oid)
	}
	slices.SortFunc(oids, less)
	for _, v := range req.Variables {
		name := "." + strings.TrimPrefix(v.Name, ".")
		if req.PDUType == gosnmp.GetRequest {
			p, known := a.values[name]
			if !known {
				p = gosnmp.SnmpPDU{Name: name, Type: gosnmp.NoSuchObject}
			}
			out = append(out, p)
			continue
		}
		for _, oid := range oids {
			if less(oid, name) > 0 && len(out) < int(max(req.MaxRepetitions, 1)) {
				out = append(out, a.values[oid])
			}
		}
		if len(out) == 0 {
			out = append(out, gosnmp.SnmpPDU{Name: name, Type: gosnmp.EndOfMibView})
		}
	}
	return out
}

// Address is where it listens.
func (a *Agent) Address() string { return a.conn.LocalAddr().String() }
