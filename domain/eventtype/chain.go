package eventtype

import (
	"crypto/sha256"
	"encoding/binary"
)

// chainDomain separates the frozen format of the registry's chain from all others.
const chainDomain = "backbone/registry/v1"

// ChainChecksum is the checksum of the change after the one before it, all zero for the
// first change of the registry:
//
//	SHA-256( L("backbone/registry/v1") ‖ previous ‖ u64 number ‖ L(action) ‖ L(type) ‖
//	         u32 schema version ‖ digest ‖ L(actor) ‖ L(reason) ‖ i64 microseconds since 1970 )
//
// with L(x) the length of x in 32 bits before x, numbers big-endian.
func (c *Change) ChainChecksum(previous [sha256.Size]byte) [sha256.Size]byte {
	text := func(dst []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
	}
	b := text(nil, chainDomain)
	b = append(b, previous[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Number))
	b = text(b, string(c.Action))
	b = text(b, c.Type)
	b = binary.BigEndian.AppendUint32(b, c.SchemaVersion)
	b = append(b, c.Digest[:]...)
	b = text(b, c.Actor)
	b = text(b, c.Reason)
	b = binary.BigEndian.AppendUint64(b, uint64(c.At.UnixMicro()))
	return sha256.Sum256(b)
}
