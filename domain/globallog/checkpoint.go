package globallog

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Checkpoint is the root of the tree over the first entries of a log (c2sp.org/tlog-checkpoint). Its text is signed.
type Checkpoint struct {
	Origin string // see Origin
	Size   uint64 // entries, at most 2^48
	Root   event.Hash
}

// maxSize bounds a log; the arithmetic of trees ends at 2^62.
const maxSize = 1 << 48

// Origin names one life of a log, "<log name>/<incarnation>": the incarnation is 1 at first, and another after
// each restore from a backup. It is the name of the key that signs too, so blanks and plus signs are hyphens.
func Origin(logName string, incarnation int) string {
	return SignerName(logName) + "/" + strconv.Itoa(incarnation)
}

// Incarnation is the incarnation in the origin; 0 if it names none.
func (c Checkpoint) Incarnation() int {
	n, err := strconv.Atoi(c.Origin[strings.LastIndex(c.Origin, "/")+1:])
	if err != nil {
		return 0
	}
	return n
}

// IsOf reports whether the checkpoint is of the same log as a later one, in the same incarnation or an earlier one.
func (c Checkpoint) IsOf(later Checkpoint) bool {
	name := func(origin string) string { return origin[:max(strings.LastIndex(origin, "/"), 0)] }
	return c.Origin == later.Origin || name(c.Origin) == name(later.Origin) && c.Incarnation() > 0 && c.Incarnation() < later.Incarnation()
}

// SignerName is a log's name with hyphens for what no name of a signer has.
func SignerName(logName string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '+' || r == 0xa0 {
			return '-'
		}
		return r
	}, logName)
}

// Text is the text that is signed: origin, size and root, a line each.
func (c Checkpoint) Text() []byte {
	return fmt.Appendf(nil, "%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// ParseCheckpoint parses the text of a checkpoint without extension lines. Fault global_log.checkpoint_malformed
// (Invalid) for another text than Text returns.
func ParseCheckpoint(text []byte) (Checkpoint, error) {
	lines := strings.Split(string(text), "\n")
	if len(lines) == 4 && lines[0] != "" {
		size, err := strconv.ParseInt(lines[1], 10, 64)
		root, ok := parseHash(lines[2])
		c := Checkpoint{Origin: lines[0], Size: uint64(size), Root: root}
		if err == nil && size >= 0 && size <= maxSize && ok && string(c.Text()) == string(text) {
			return c, nil
		}
	}
	return Checkpoint{}, fault.New(fault.Invalid, "global_log.checkpoint_malformed", "a checkpoint is three lines, origin, size and root, and its signatures; take it as it was exported")
}

// parseHash decodes a hash in base64, which has one encoding.
func parseHash(text string) (event.Hash, bool) {
	var h event.Hash
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(h) {
		return h, false
	}
	return event.Hash(b), true
}
