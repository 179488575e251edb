package xmltree

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"strings"
	"unicode/utf8"
)

var errEncoding = errors.New("unsupported encoding")

// charsetReader converts ISO-8859-1 and US-ASCII to UTF-8. The XML decoder calls it only
// for declared encodings other than UTF-8.
func charsetReader(label string, in io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "iso-8859-1", "iso8859-1", "latin1":
		return &singleByteReader{r: in, last: 0xff}, nil
	case "us-ascii", "ascii":
		return &singleByteReader{r: in, last: 0x7f}, nil
	}
	return nil, errEncoding
}

// singleByteReader converts an encoding whose bytes equal their code points to UTF-8.
type singleByteReader struct {
	r       io.Reader
	last    byte // greatest byte of the encoding
	buf     [512]byte
	pending []byte // encoded, not yet delivered
	err     error
}

func (s *singleByteReader) Read(p []byte) (int, error) {
	for len(s.pending) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		n, err := s.r.Read(s.buf[:])
		s.err = err
		s.pending = make([]byte, 0, 2*n)
		for _, c := range s.buf[:n] {
			if c > s.last {
				s.err = errEncoding
				break
			}
			s.pending = utf8.AppendRune(s.pending, rune(c))
		}
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// blob computes the digest of an embedded file from its text, base64 with blanks anywhere. It
// keeps no copy of text or content beyond a buffer, unless it keeps the bytes.
type blob struct {
	keeps bool
	bytes []byte
	hash  hash.Hash
	size  int64
	buf   [4096]byte // a multiple of 4
	n     int
	ended bool // padding was seen
	bad   bool
}

func newBlob(keeps bool) *blob { return &blob{keeps: keeps, hash: sha256.New()} }

func (b *blob) write(text []byte) {
	for _, c := range text {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		}
		b.buf[b.n] = c
		b.n++
		if b.n == len(b.buf) {
			b.flush()
		}
	}
}

func (b *blob) flush() {
	if b.n == 0 || b.bad {
		b.n = 0
		return
	}
	var out [3072]byte
	n, err := base64.StdEncoding.Decode(out[:], b.buf[:b.n])
	if err != nil || b.ended {
		b.bad = true
	}
	b.ended = b.buf[b.n-1] == '='
	b.size += int64(n)
	_, _ = b.hash.Write(out[:n])
	if b.keeps {
		b.bytes = append(b.bytes, out[:n]...)
	}
	b.n = 0
}

func (b *blob) close() *Content {
	b.flush()
	return &Content{SHA256: hex.EncodeToString(b.hash.Sum(nil)), Size: b.size, Valid: !b.bad, Bytes: b.bytes}
}
