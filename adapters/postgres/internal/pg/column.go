package pg

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/domain/event"
)

// Column is one array parameter. It appends elements in PostgreSQL's binary array format, so
// that a group of hundreds of events is encoded without allocating a value for each field. It
// is reset and reused for the next group.
type Column struct {
	element uint32 // type OID of the elements
	count   int
	nulls   bool
	data    []byte
}

// arrayHeader is how many bytes of an array come before its elements.
const arrayHeader = 20

// Seconds and days between 1970-01-01 and PostgreSQL's epoch, 2000-01-01.
const (
	epochMicros = 946684800 * 1_000_000
	epochDays   = 10957
)

// NewColumn makes an empty array whose elements have the given type OID.
func NewColumn(element uint32) *Column { return &Column{element: element} }

// Reset empties the array and keeps its memory for the next group.
func (c *Column) Reset() { c.count, c.nulls, c.data = 0, false, c.data[:0] }

func (c *Column) size(n int) {
	c.count++
	c.data = binary.BigEndian.AppendUint32(c.data, uint32(n))
}

// Null appends NULL.
func (c *Column) Null() {
	c.count++
	c.nulls = true
	c.data = binary.BigEndian.AppendUint32(c.data, 0xffffffff)
}

// Int2 appends a smallint.
func (c *Column) Int2(v int16) {
	c.size(2)
	c.data = binary.BigEndian.AppendUint16(c.data, uint16(v))
}

// Int4 appends an integer.
func (c *Column) Int4(v int32) {
	c.size(4)
	c.data = binary.BigEndian.AppendUint32(c.data, uint32(v))
}

// OptionalInt4 is NULL when zero.
func (c *Column) OptionalInt4(v int32) {
	if v == 0 {
		c.Null()
		return
	}
	c.Int4(v)
}

// Int8 appends a bigint.
func (c *Column) Int8(v int64) {
	c.size(8)
	c.data = binary.BigEndian.AppendUint64(c.data, uint64(v))
}

// Text appends text, also if it is empty.
func (c *Column) Text(v string) {
	c.size(len(v))
	c.data = append(c.data, v...)
}

// Optional is text that is NULL when empty.
func (c *Column) Optional(v string) {
	if v == "" {
		c.Null()
		return
	}
	c.Text(v)
}

// Bytes appends bytes as they are.
func (c *Column) Bytes(v []byte) {
	c.size(len(v))
	c.data = append(c.data, v...)
}

// JSON appends text that is NULL when empty; the bytes are sent as they are.
func (c *Column) JSON(v []byte) {
	if len(v) == 0 {
		c.Null()
		return
	}
	c.Bytes(v)
}

// ID appends a uuid, NULL when zero.
func (c *Column) ID(v event.ID) {
	if v == (event.ID{}) {
		c.Null()
		return
	}
	c.Bytes(v[:])
}

// Time appends a timestamptz in microseconds.
func (c *Column) Time(t time.Time) { c.Int8(t.UnixMicro() - epochMicros) }

// Date appends a date.
func (c *Column) Date(d event.Date) { c.Int4(int32(d) - epochDays) }

// List is a text array written as an array literal, NULL when empty: arrays of
// arrays cannot be ragged.
func (c *Column) List(items []string) {
	if len(items) == 0 {
		c.Null()
		return
	}
	c.Texts(items)
}

// Texts is list, {} when empty.
func (c *Column) Texts(items []string) {
	at := len(c.data)
	c.size(0)
	c.data = AppendArrayLiteral(c.data, items)
	binary.BigEndian.PutUint32(c.data[at:], uint32(len(c.data)-at-4))
}

// JSONTexts is a JSON object of texts, NULL when empty.
func (c *Column) JSONTexts(texts map[string]string) {
	if len(texts) == 0 {
		c.Null()
		return
	}
	at := len(c.data)
	c.size(0)
	c.data = appendTexts(c.data, texts)
	binary.BigEndian.PutUint32(c.data[at:], uint32(len(c.data)-at-4))
}

// appendTexts renders a map of texts byte for byte as encoding/json does, sorted by name, but
// without reflection.
func appendTexts(dst []byte, texts map[string]string) []byte {
	var few [8]string
	names := few[:0]
	for name, value := range texts {
		if !plain(name) || !plain(value) {
			text, _ := json.Marshal(texts) // a map of strings always encodes
			return append(dst, text...)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		opening := `,"`
		if i == 0 {
			opening = `{"`
		}
		dst = append(append(append(append(append(dst, opening...), name...), `":"`...), texts[name]...), '"')
	}
	return append(dst, '}')
}

// plain reports whether encoding/json writes a text without escapes.
func plain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// AppendArrayLiteral adds a text array as PostgreSQL writes it.
func AppendArrayLiteral(dst []byte, items []string) []byte {
	dst = append(dst, '{')
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		for {
			n := strings.IndexAny(item, `"\`)
			if n < 0 {
				break
			}
			dst = append(dst, item[:n]...)
			dst = append(dst, '\\', item[n])
			item = item[n+1:]
		}
		dst = append(dst, item...)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// appendArray lets a buffer that is too small grow to four times its need: the parameters of a group
// follow one another, and each step by which append grows copies all that is there.
func (c *Column) appendArray(dst []byte) []byte {
	if need := len(dst) + arrayHeader + len(c.data); need > cap(dst) {
		dst = slices.Grow(dst, 4*need-len(dst))
	}
	dimensions, nulls := uint32(1), uint32(0)
	if c.count == 0 {
		dimensions = 0
	}
	if c.nulls {
		nulls = 1
	}
	dst = binary.BigEndian.AppendUint32(dst, dimensions)
	dst = binary.BigEndian.AppendUint32(dst, nulls)
	dst = binary.BigEndian.AppendUint32(dst, c.element)
	if c.count == 0 {
		return dst
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(c.count))
	dst = binary.BigEndian.AppendUint32(dst, 1)
	return append(dst, c.data...)
}

// columnCodec sends the bytes of columns; the array codec encodes every other value.
type columnCodec struct{ pgtype.Codec }

func (c columnCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(*Column); ok {
		return columnPlan{}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

func (c columnCodec) PreferredFormat() int16 { return pgtype.BinaryFormatCode }

type columnPlan struct{}

func (columnPlan) Encode(value any, buf []byte) ([]byte, error) {
	return value.(*Column).appendArray(buf), nil
}

// registerColumns registers the codec of columns with a connection.
func registerColumns(conn *pgx.Conn) {
	m := conn.TypeMap()
	for _, oid := range []uint32{
		pgtype.Int2ArrayOID, pgtype.Int4ArrayOID, pgtype.Int8ArrayOID, pgtype.TextArrayOID, pgtype.UUIDArrayOID,
		pgtype.ByteaArrayOID, pgtype.TimestamptzArrayOID, pgtype.DateArrayOID,
	} {
		if t, ok := m.TypeForOID(oid); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: columnCodec{t.Codec}})
		}
	}
}
