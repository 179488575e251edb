package event

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"time"
)

// Domain separation tags of the frozen hash formats.
const (
	payloadDomain = "backbone/payload/v1"
	genesisDomain = "backbone/genesis/v1"
	eventDomain   = "backbone/event/v1"
)

func appendText(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// HashPayload is SHA-256(L("backbone/payload/v1") ‖ salt ‖ stored payload bytes).
func HashPayload(salt Salt, payload []byte) Hash {
	h := sha256.New()
	var prefix [4 + len(payloadDomain)]byte
	writeAll(h, appendText(prefix[:0], payloadDomain), salt[:], payload)
	return sum(h)
}

// GenesisChecksum is the checksum before a partition's first event:
// SHA-256(L("backbone/genesis/v1") ‖ L(log name) ‖ u32 partition_id).
func GenesisChecksum(logName string, partition PartitionID) Hash {
	b := appendText(nil, genesisDomain)
	b = appendText(b, logName)
	b = binary.BigEndian.AppendUint32(b, uint32(partition))
	return sha256.Sum256(b)
}

// ChainChecksum is SHA-256(L("backbone/event/v1") ‖ previous checksum ‖ S), with
// S the skeleton's preimage, which contains the payload's hash but not the payload. L(x) is the
// length of x in 4 bytes followed by x. The checksum of a partition's last event is the head of
// its chain. Callers pass the returned buffer to the next call, to save allocations.
func (s *Skeleton) ChainChecksum(previous Hash, buffer []byte) (Hash, []byte) {
	b := appendText(buffer[:0], eventDomain)
	b = append(b, previous[:]...)
	b = s.AppendPreimage(b)
	return sha256.Sum256(b), b
}

// AppendPreimage appends S: the skeleton's fields by ascending tag, each as
// u16 tag ‖ L(value), NULL columns left out. The tag numbers are frozen; 34 is
// the next free one. The checksum itself is not part of it.
func (s *Skeleton) AppendPreimage(dst []byte) []byte {
	p := preimage{dst}
	p.u32(1, uint32(s.Partition))
	p.u64(2, uint64(s.Sequence))
	p.bytes(3, s.ID[:])
	p.text(4, s.Type)
	p.u32(5, s.SchemaVersion)
	p.time(6, s.OccurredAt)
	p.time(7, s.RecordedAt)
	p.u32(8, uint32(s.EffectiveDate))
	p.text(9, s.Scope.TenantID)
	p.text(10, s.Scope.LegalEntity)
	p.optional(11, s.Scope.Division)
	p.optional(12, s.Scope.Region)
	p.optional(13, s.Scope.Site)
	p.json(14, s.Scope.Custom)
	p.text(15, string(s.ActorType))
	p.text(16, s.ActorID)
	p.optional(17, s.ActorName)
	p.json(18, s.ActorDetails)
	p.id(19, s.CausedBy)
	if s.CausedByPartition != 0 {
		p.u32(20, uint32(s.CausedByPartition))
	}
	p.id(21, s.IntentID)
	p.text(22, s.CorrelationID)
	p.text(23, s.Stream.Type)
	p.text(24, s.Stream.ID)
	p.u64(25, uint64(s.StreamVersion))
	p.list(26, s.Tags)
	p.optional(27, s.Source.System)
	p.optional(28, s.Source.Channel)
	p.optional(29, s.Source.Reference)
	p.json(30, s.RulesEvaluated)
	p.sortedMap(31, s.PII)
	p.bytes(32, s.PayloadHash[:])
	p.optional(33, s.ContentEncoding)
	return p.b
}

type preimage struct{ b []byte }

func (p *preimage) head(tag uint16, n int) {
	p.b = binary.BigEndian.AppendUint16(p.b, tag)
	p.b = binary.BigEndian.AppendUint32(p.b, uint32(n))
}

func (p *preimage) u32(tag uint16, v uint32) {
	p.head(tag, 4)
	p.b = binary.BigEndian.AppendUint32(p.b, v)
}

func (p *preimage) u64(tag uint16, v uint64) {
	p.head(tag, 8)
	p.b = binary.BigEndian.AppendUint64(p.b, v)
}

func (p *preimage) bytes(tag uint16, v []byte) {
	p.head(tag, len(v))
	p.b = append(p.b, v...)
}

func (p *preimage) text(tag uint16, v string) {
	p.head(tag, len(v))
	p.b = append(p.b, v...)
}

func (p *preimage) optional(tag uint16, v string) {
	if v != "" {
		p.text(tag, v)
	}
}

func (p *preimage) json(tag uint16, v []byte) {
	if len(v) > 0 {
		p.bytes(tag, v)
	}
}

func (p *preimage) id(tag uint16, v ID) {
	if v != (ID{}) {
		p.bytes(tag, v[:])
	}
}

func (p *preimage) time(tag uint16, t time.Time) { p.u64(tag, uint64(t.UnixMicro())) }

func (p *preimage) list(tag uint16, items []string) {
	if len(items) == 0 {
		return
	}
	n := 4
	for _, v := range items {
		n += 4 + len(v)
	}
	p.head(tag, n)
	p.b = binary.BigEndian.AppendUint32(p.b, uint32(len(items)))
	for _, v := range items {
		p.b = appendText(p.b, v)
	}
}

func (p *preimage) sortedMap(tag uint16, m map[string]string) {
	if len(m) == 0 {
		return
	}
	n := 4
	names := make([]string, 0, len(m))
	for k, v := range m {
		names = append(names, k)
		n += 8 + len(k) + len(v)
	}
	slices.Sort(names)
	p.head(tag, n)
	p.b = binary.BigEndian.AppendUint32(p.b, uint32(len(m)))
	for _, k := range names {
		p.b = appendText(p.b, k)
		p.b = appendText(p.b, m[k])
	}
}

func writeAll(h hash.Hash, parts ...[]byte) {
	for _, p := range parts {
		_, _ = h.Write(p) // a hash never fails to write
	}
}

func sum(h hash.Hash) Hash {
	var out Hash
	h.Sum(out[:0])
	return out
}
