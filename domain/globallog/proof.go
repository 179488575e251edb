package globallog

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Proof shows that an entry is in a log (c2sp.org/tlog-proof).
type Proof struct {
	Extra      []byte // what the reader needs to compute the entry; "": nothing
	Position   Position
	Hashes     []event.Hash // see ProveInclusion
	Checkpoint []byte       // a signed note
}

const proofHeader = "c2sp.org/tlog-proof@v1"

// maxProofHashes is the height of the largest tree.
const maxProofHashes = 63

// Encode returns the proof as text.
func (p Proof) Encode() []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, proofHeader)
	if len(p.Extra) > 0 {
		fmt.Fprintln(&b, "extra", base64.StdEncoding.EncodeToString(p.Extra))
	}
	fmt.Fprintln(&b, "index", p.Position)
	writeHashes(&b, p.Hashes)
	b.Write(p.Checkpoint)
	return b.Bytes()
}

// ParseProof parses the text of a proof and checks nothing. Fault global_log.proof_malformed (Invalid) for
// another text than Encode returns.
func ParseProof(text []byte) (Proof, error) {
	malformed := fault.New(fault.Invalid, "global_log.proof_malformed", "the file is no proof as `backbone prove` writes it; take it as it was written")
	head, checkpoint, found := strings.Cut(string(text), "\n\n")
	if !found {
		return Proof{}, malformed
	}
	p := Proof{Checkpoint: []byte(checkpoint)}
	lines := strings.Split(head, "\n")[1:]
	if len(lines) > 0 {
		if extra, has := strings.CutPrefix(lines[0], "extra "); has {
			p.Extra, _ = base64.StdEncoding.DecodeString(extra) // Encode gives another text if it is malformed
			lines = lines[1:]
		}
	}
	if len(lines) == 0 || len(lines) > 1+maxProofHashes {
		return Proof{}, malformed
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[0], "index "), 10, 64)
	if err != nil || index < 0 {
		return Proof{}, malformed
	}
	p.Position = Position(index)
	var ok bool
	if p.Hashes, ok = parseHashes(lines[1:]); !ok || !bytes.Equal(p.Encode(), text) {
		return Proof{}, malformed
	}
	return p, nil
}

// Extension shows that a log begins with an earlier state of itself: the body of a request to a witness
// (c2sp.org/tlog-witness).
type Extension struct {
	From       uint64       // size of the earlier checkpoint
	Hashes     []event.Hash // see ProveConsistency
	Checkpoint []byte       // a signed note
}

// Encode returns the extension as text.
func (x Extension) Encode() []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "old", x.From)
	writeHashes(&b, x.Hashes)
	b.Write(x.Checkpoint)
	return b.Bytes()
}

// ParseExtension parses the text of an extension and checks nothing. Fault global_log.proof_malformed (Invalid)
// for another text than Encode returns.
func ParseExtension(text []byte) (Extension, error) {
	malformed := fault.New(fault.Invalid, "global_log.proof_malformed", "the text is no proof that a log was extended; take it as it was written")
	head, checkpoint, found := strings.Cut(string(text), "\n\n")
	lines := strings.Split(head, "\n")
	from, err := strconv.ParseInt(strings.TrimPrefix(lines[0], "old "), 10, 64)
	if !found || err != nil || from < 0 || len(lines) > 1+maxProofHashes {
		return Extension{}, malformed
	}
	x := Extension{From: uint64(from), Checkpoint: []byte(checkpoint)}
	var ok bool
	if x.Hashes, ok = parseHashes(lines[1:]); !ok || !bytes.Equal(x.Encode(), text) {
		return Extension{}, malformed
	}
	return x, nil
}

// writeHashes writes a line for each hash, and an empty one.
func writeHashes(b *bytes.Buffer, hashes []event.Hash) {
	for _, h := range hashes {
		fmt.Fprintln(b, base64.StdEncoding.EncodeToString(h[:]))
	}
	b.WriteByte('\n')
}

func parseHashes(lines []string) (hashes []event.Hash, ok bool) {
	hashes = make([]event.Hash, len(lines))
	for i, line := range lines {
		if hashes[i], ok = parseHash(line); !ok {
			return nil, false
		}
	}
	return hashes, true
}
