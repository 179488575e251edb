package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/erpbackbone/backbone/domain/event"
)

// A segment has at most MaxRecords records, and MaxBytes of lines unless its only record is longer.
const (
	MaxRecords = 10_000
	MaxBytes   = 8 << 20
)

// maxDecoded bounds what is decompressed of a file that says it is a segment: MaxBytes, and a record that exceeds it.
const maxDecoded = MaxBytes + 16<<20

// contentDomain begins the text whose hash is that of the content. It never changes: add a new version.
const contentDomain = "backbone/archive/v1"

// Manifest says what a segment holds. An event of the partition has it, so that the chain of the log vouches for it.
type Manifest struct {
	First   event.Sequence `json:"first_sequence"`
	Last    event.Sequence `json:"last_sequence"`
	Records int            `json:"records"` // at most Last - First + 1: the other payloads of the range stay in the database
	// Content is a hash of the sequences and payload hashes of the records, see ContentHash; hexadecimal.
	Content string `json:"content_hash"`
	Object  string `json:"object"`        // name of the file in the store of the archive
	Digest  string `json:"object_sha256"` // of the file; hexadecimal
	Bytes   int    `json:"object_bytes"`  // of the file
	Lines   int    `json:"lines_bytes"`   // of its lines, before compression
}

// ContentHash is SHA-256(L("backbone/archive/v1") ‖ u32 partition ‖ (u64 sequence ‖ payload hash) of each record), with
// the hash of the payload as it is. L(x) is the length of x in four bytes, and x.
func ContentHash(p event.PartitionID, records []Record) event.Hash {
	h := sha256.New()
	text := binary.BigEndian.AppendUint32(nil, uint32(len(contentDomain)))
	text = binary.BigEndian.AppendUint32(append(text, contentDomain...), uint32(p))
	for i := range records {
		hash := records[i].Hash()
		text = append(binary.BigEndian.AppendUint64(text, uint64(records[i].Sequence)), hash[:]...)
		h.Write(text)
		text = text[:0]
	}
	return event.Hash(h.Sum(nil))
}

// folder is that of all segments in the store.
const folder = "archive/"

// Folder is that of the segments of a partition.
func Folder(p event.PartitionID) string { return fmt.Sprintf("%s%d/", folder, uint32(p)) }

// ObjectRange reads the range of sequences from the name of a segment.
func ObjectRange(name string) (first, last event.Sequence, ok bool) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	parts := strings.SplitN(name, "-", 3)
	if len(parts) != 3 || !strings.HasSuffix(name, extension) {
		return 0, 0, false
	}
	f, err := strconv.ParseUint(parts[0], 10, 63)
	if err != nil {
		return 0, 0, false
	}
	l, err := strconv.ParseUint(parts[1], 10, 63)
	return event.Sequence(f), event.Sequence(l), err == nil
}

const extension = ".jsonl.zst"

// Encode makes the segment of a range of sequences. The records are ascending, within the range and at least one. The
// same records give the same file, with the same release of the compression: its name holds a part of its digest.
func Encode(p event.PartitionID, first, last event.Sequence, records []Record) (object []byte, m Manifest, err error) {
	var lines []byte
	for i := range records {
		if lines, err = records[i].appendLine(lines); err != nil {
			return nil, m, err
		}
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return nil, m, err
	}
	object = encoder.EncodeAll(lines, nil)
	digest, content := sha256.Sum256(object), ContentHash(p, records)
	m = Manifest{
		First: first, Last: last, Records: len(records), Content: hex.EncodeToString(content[:]),
		Object: fmt.Sprintf("%s%012d-%012d-%x%s", Folder(p), uint64(first), uint64(last), digest[:8], extension),
		Digest: hex.EncodeToString(digest[:]), Bytes: len(object), Lines: len(lines),
	}
	return object, m, nil
}

// LineBytes is about how many bytes the record's line has, rather too many.
func (r *Record) LineBytes() int {
	n := len(r.Payload) + 250
	for _, x := range r.Redactions {
		n += 100
		for _, p := range x.Pointers {
			n += 2*len(p) + 3
		}
	}
	if bytes.ContainsAny(r.Payload, "\r\n") {
		n += len(r.Payload) // quotes and line breaks have two characters
	}
	return n
}

// Decode reads a segment whose file has a digest, in bounded memory. Fault archive.object_damaged.
func Decode(object []byte, digest event.Hash) ([]Record, error) {
	if sha256.Sum256(object) != digest {
		return nil, ObjectDamaged()
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxDecoded))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	lines, err := decoder.DecodeAll(object, nil)
	if err != nil {
		return nil, ObjectDamaged()
	}
	n := bytes.Count(lines, []byte{'\n'})
	if n > MaxRecords {
		return nil, ObjectDamaged()
	}
	records := make([]Record, 0, n)
	for text := range bytes.Lines(lines) {
		r, err := parseLine(text)
		if err != nil || len(records) > 0 && r.Sequence <= records[len(records)-1].Sequence {
			return nil, ObjectDamaged()
		}
		records = append(records, r)
	}
	return records, nil
}
