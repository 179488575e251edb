package verify

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// maxLine bounds a line of an export file: an event of the largest size with every
// character escaped.
const maxLine = 32 << 20

// Dump verifies an export file without database and network, one line at a time. It returns
// the log name too. An error of the reader comes back unchanged, with the findings until
// then in the report. verify.not_an_export (Invalid) if the file does not begin like an
// export.
func Dump(file io.Reader, options ...Option) (EntityReport, string, error) {
	d := dump{in: bufio.NewReaderSize(file, 64<<10), digest: sha256.New()}
	text, err := d.line()
	if err != nil && !errors.Is(err, io.EOF) {
		return EntityReport{}, "", err
	}
	var header headerLine
	if !decodeLine(text, &header) || header.Kind != lineHeader || header.Format != exportFormat && header.Format != exportFormat1 || header.Partition == 0 {
		return EntityReport{}, "", fault.New(fault.Invalid, "verify.not_an_export", "the file does not begin like an export of a log; take one that `backbone export-log` wrote")
	}
	d.digest.Write(text)
	r := run{logName: header.LogName}
	for _, o := range options {
		o(&r)
	}
	le := ports.LegalEntity{TenantID: header.Tenant, Code: header.LegalEntity, Partition: header.Partition}
	report := newReport(le)
	var genesis event.Hash
	unhex(genesis[:], header.Genesis) // newChain reports an invalid text as a mismatch
	d.chain = newChain(&r, &report, le, genesis)
	d.chain.redactions.init(nil)
	d.chain.redactions.ungrounded = header.Format == exportFormat1
	if err := d.read(); err != nil {
		d.chain.abort()
		return report, header.LogName, err
	}
	d.chain.finish()
	return report, header.LogName, nil
}

type dump struct {
	in         *bufio.Reader
	digest     hash.Hash
	number     int // of the last line
	chain      *chain
	redactions []ports.Redaction
}

// line reads one line with its line feed. At the end of the file it returns io.EOF with the
// rest that has no line feed.
func (d *dump) line() ([]byte, error) {
	d.number++
	var long []byte
	for {
		part, err := d.in.ReadSlice('\n')
		if err == nil && long == nil {
			return part, nil
		}
		long = append(long, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(long) <= maxLine:
		case errors.Is(err, bufio.ErrBufferFull):
			return long, io.EOF // Export writes no such line, so the rest of the file is ignored
		default:
			return long, err
		}
	}
}

// read checks everything after the header.
func (d *dump) read() error {
	for {
		text, err := d.line()
		if errors.Is(err, io.EOF) {
			d.truncated("the file ends without its trailer")
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case bytes.HasPrefix(text, []byte(`{"kind":"event",`)):
			d.event(text)
		case bytes.HasPrefix(text, []byte(`{"kind":"redaction",`)):
			d.redaction(text)
		case bytes.HasPrefix(text, []byte(`{"kind":"trailer",`)):
			d.trailer(text)
			return nil
		default:
			d.malformed()
		}
		d.digest.Write(text)
	}
}

func (d *dump) truncated(detail string) {
	d.chain.add(ExportTruncated, d.chain.report.Head+1, detail)
}

func (d *dump) malformed() {
	d.chain.add(ExportMalformed, d.chain.report.Head+1, fmt.Sprintf("line %d is not as it was written", d.number))
}

func (d *dump) event(text []byte) {
	var l eventLine
	if decodeLine(text, &l) {
		if e, rows, ok := l.recorded(d.chain.entity.Partition); ok {
			d.chain.check(&e, rows, true)
			return
		}
	}
	d.malformed()
	d.chain.report.Events++
	d.chain.report.Head++
	d.chain.unlinked = true
}

func (d *dump) redaction(text []byte) {
	var l redactionLine
	if decodeLine(text, &l) && d.chain.report.Events == 0 {
		if r, ok := l.redaction(d.chain.entity.Partition); ok {
			d.redactions = append(d.redactions, r)
			d.chain.redactions.init(d.redactions)
			return
		}
	}
	d.malformed()
}

func (d *dump) trailer(text []byte) {
	var l trailerLine
	if !decodeLine(text, &l) {
		d.malformed()
		return
	}
	if again, err := encodeLine(l); err != nil || !bytes.Equal(again, text) {
		d.malformed()
	}
	r := d.chain.report
	checksum := r.Checksum
	if r.Events == 0 {
		checksum = hex.EncodeToString(d.chain.previous[:])
	}
	if l.Events != r.Events || l.Head != r.Head || l.Checksum != checksum || l.Redactions != len(d.redactions) {
		d.truncated("the counts or the head in the trailer are not those of the file")
	}
	if l.Digest != hex.EncodeToString(d.digest.Sum(nil)) {
		d.chain.add(ExportDigest, 0, "the digest in the trailer is not that of the file")
	}
	if _, err := d.in.Peek(1); err != io.EOF {
		d.chain.add(ExportMalformed, r.Head+1, "something follows the trailer")
	}
}
