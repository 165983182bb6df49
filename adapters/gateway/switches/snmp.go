package switches

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gosnmp/gosnmp"
)

// Of SNMPv2-MIB, IF-MIB (RFC 2863) and LLDP-MIB (IEEE 802.1AB).
const (
	sysDescr = ".1.3.6.1.2.1.1.1.0"

	ifType       = ".1.3.6.1.2.1.2.2.1.3"
	ifAdmin      = ".1.3.6.1.2.1.2.2.1.7"
	ifOper       = ".1.3.6.1.2.1.2.2.1.8"
	ifInDiscards = ".1.3.6.1.2.1.2.2.1.13"
	ifInErrors   = ".1.3.6.1.2.1.2.2.1.14"
	ifName       = ".1.3.6.1.2.1.31.1.1.1.1"
	ifHCUnicast  = ".1.3.6.1.2.1.31.1.1.1.7"
	ifHCMulti    = ".1.3.6.1.2.1.31.1.1.1.8"
	ifHCBroad    = ".1.3.6.1.2.1.31.1.1.1.9"
	ifHighSpeed  = ".1.3.6.1.2.1.31.1.1.1.15"

	lldpLocPort = ".1.0.8802.1.1.2.1.3.7.1.3"
	lldpFarPort = ".1.0.8802.1.1.2.1.4.1.1.7"
	lldpFarName = ".1.0.8802.1.1.2.1.4.1.1.9"
)

// physical are the types of interfaces that have a plug: Ethernet, its older
// names, and InfiniBand.
var physical = []int64{6, 62, 69, 117, 199}

// found is what a switch said.
type found struct {
	model string
	ports []port
}

type port struct {
	index            int64
	name             string
	wanted, up       bool
	speed            int64 // bits per second
	farName, farPort string
	counted          counters
}

// poll asks a switch everything.
func poll(ctx context.Context, s *Switch) (*found, error) {
	host, at, err := s.target()
	if err != nil {
		return nil, err
	}
	g := &gosnmp.GoSNMP{Target: host, Port: at, Transport: "udp", Version: gosnmp.Version2c, Community: cmp.Or(s.Community, "public"), Timeout: timeout, Retries: 1,
		MaxOids: 60, MaxRepetitions: 25, Context: ctx}
	if err := g.Connect(); err != nil {
		return nil, fmt.Errorf("reach %s: %w", s.Address, err)
	}
	defer func() { _ = g.Conn.Close() }() // it only reads
	res, err := g.Get([]string{sysDescr})
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", s.Address, err)
	}
	out := &found{}
	if len(res.Variables) > 0 {
		out.model = clean(res.Variables[0], 128)
	}
	table := map[string]map[string]gosnmp.SnmpPDU{}
	for _, oid := range []string{ifType, ifAdmin, ifOper, ifInDiscards, ifInErrors, ifName, ifHCUnicast, ifHCMulti, ifHCBroad, ifHighSpeed, lldpLocPort, lldpFarPort, lldpFarName} {
		rows, err := g.BulkWalkAll(oid)
		if err != nil {
			return nil, fmt.Errorf("ask %s: %w", s.Address, err)
		}
		table[oid] = map[string]gosnmp.SnmpPDU{}
		for _, r := range rows {
			table[oid][strings.TrimPrefix(r.Name, oid+".")] = r
		}
	}
	out.ports = ports(table)
	return out, nil
}

// ports puts the tables together.
func ports(table map[string]map[string]gosnmp.SnmpPDU) []port {
	number := func(oid, index string) int64 { return whole(table[oid][index]) }
	var out []port
	at := map[string]int{} // by name
	for index, r := range table[ifName] {
		n, err := strconv.ParseInt(index, 10, 64)
		name := clean(r, 64)
		if err != nil || name == "" || !slices.Contains(physical, number(ifType, index)) {
			continue
		}
		out = append(out, port{index: n, name: name, wanted: number(ifAdmin, index) == 1, up: number(ifOper, index) == 1, speed: min(number(ifHighSpeed, index), 1e9) * 1_000_000,
			counted: counters{frames: uint64(number(ifHCUnicast, index)) + uint64(number(ifHCMulti, index)) + uint64(number(ifHCBroad, index)),
				errors: uint64(number(ifInErrors, index)), dropped: uint64(number(ifInDiscards, index))}})
	}
	slices.SortFunc(out, byName)
	for i := range out {
		at[out[i].name] = i
	}
	// Neighbors are by time, local port and number. Local ports have numbers of
	// their own: what they are called says which they are, or else they are those
	// of the interfaces.
	for index, r := range table[lldpFarName] {
		parts := strings.Split(index, ".")
		if len(parts) != 3 {
			continue
		}
		i, known := at[clean(table[lldpLocPort][parts[1]], 64)]
		if !known {
			i = slices.IndexFunc(out, func(p port) bool { return strconv.FormatInt(p.index, 10) == parts[1] })
		}
		if i >= 0 && i < len(out) {
			out[i].farName, out[i].farPort = clean(r, 253), clean(table[lldpFarPort][index], 64)
		}
	}
	return out
}

// whole is a number, 0 for what is none.
func whole(p gosnmp.SnmpPDU) int64 {
	switch p.Type {
	case gosnmp.Integer, gosnmp.Counter32, gosnmp.Gauge32, gosnmp.Counter64, gosnmp.TimeTicks, gosnmp.Uinteger32:
		if n := gosnmp.ToBigInt(p.Value); n.IsInt64() {
			return max(n.Int64(), 0)
		}
	}
	return 0
}

// clean is text as it can be told, "" for what is none.
func clean(p gosnmp.SnmpPDU, most int) string {
	b, ok := p.Value.([]byte)
	if !ok || p.Type != gosnmp.OctetString || !utf8.Valid(b) {
		return ""
	}
	s := strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, string(b)))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
