package globallog

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// Cosigner signs as a witness.
type Cosigner interface {
	VerifierKey() string
	Cosign(text []byte, at time.Time) (line []byte)
}

// Witness signs checkpoints of logs that continue what it signed before (c2sp.org/tlog-witness): two readers whose
// checkpoints it signed have seen the same log.
type Witness struct {
	logs     map[string][]string // verifier keys by origin
	state    ports.WitnessState
	cosigner Cosigner
	opener   ports.CheckpointOpener

	adding sync.Mutex // a checkpoint is compared and kept before the next one
}

// NewWitness makes a Witness of the logs with these verifier keys. It is the only one that uses the state.
func NewWitness(state ports.WitnessState, cosigner Cosigner, opener ports.CheckpointOpener, keys ...string) *Witness {
	w := &Witness{logs: map[string][]string{}, state: state, cosigner: cosigner, opener: opener}
	for _, key := range keys {
		origin, _, _ := strings.Cut(key, "+")
		w.logs[origin] = append(w.logs[origin], key)
	}
	return w
}

// AddCheckpoint returns the lines of signatures of a checkpoint that continues the newest one. The request is the text
// of an Extension.
//
//	global_log.proof_malformed, global_log.checkpoint_malformed  Invalid
//	witness.log_unknown    NotFound: the checkpoint is of none of the logs
//	note.not_verified      Invalid: it has no signature of the log
//	witness.size_differs   Conflict: the extension begins with another size than the newest checkpoint, whose size is Actual
//	global_log.inconsistent  Invalid: the log was changed
//	witness.state_damaged    FailedPrecondition: what it signed last cannot be read
func (w *Witness) AddCheckpoint(request []byte, now time.Time) (lines []byte, err error) {
	x, err := globallog.ParseExtension(request)
	if err != nil {
		return nil, err
	}
	origin, _, _ := strings.Cut(string(x.Checkpoint), "\n")
	if w.logs[origin] == nil {
		return nil, fault.New(fault.NotFound, "witness.log_unknown", "this witness does not know the log of the checkpoint; give it the log's verifier key")
	}
	text, signatures := splitNote(x.Checkpoint)
	signed, err := w.signatureOf(text, signatures, w.logs[origin])
	if err != nil {
		return nil, err
	}
	next, err := globallog.ParseCheckpoint(text)
	if err != nil {
		return nil, err
	}
	if x.From > next.Size {
		return nil, fault.New(fault.Invalid, "global_log.proof_malformed", "the log cannot have become smaller")
	}
	w.adding.Lock()
	defer w.adding.Unlock()
	newest, err := w.newest(origin)
	if err != nil {
		return nil, err
	}
	if x.From != newest.Size {
		return nil, fault.New(fault.Conflict, "witness.size_differs", "the newest checkpoint that this witness signed has %d events", newest.Size).WithNumbers(x.From, newest.Size)
	}
	empty := globallog.Edge{}
	isEmptyWrong := next.Size == 0 && next.Root != empty.Root()
	isSameWrong := next.Size == newest.Size && next.Size > 0 && (next.Root != newest.Root || len(x.Hashes) > 0)
	if isEmptyWrong || isSameWrong {
		return nil, fault.New(fault.Invalid, "global_log.inconsistent", "the log of %d events is another one than before", next.Size)
	}
	if next.Size > newest.Size || newest.Size == 0 {
		if err := globallog.CheckConsistency(x.Hashes, next, newest); err != nil {
			return nil, err
		}
	}
	lines = w.cosigner.Cosign(next.Text(), now)
	// What else is below the checkpoint is not kept: who sent it may have put anything there.
	if err := w.state.Keep(origin, slices.Concat(text, []byte("\n"), signed, lines)); err != nil {
		return nil, err // only what it remembers may it have signed
	}
	return lines, nil
}

// splitNote returns the text of a checkpoint, which has no empty line, and what is below it.
func splitNote(note []byte) (text, signatures []byte) {
	end := bytes.Index(note, []byte("\n\n"))
	if end < 0 {
		return nil, nil
	}
	return note[:end+1], note[end+2:]
}

// signatureOf finds the signature of a text with one of the keys.
func (w *Witness) signatureOf(text, signatures []byte, keys []string) (line []byte, err error) {
	for _, key := range keys {
		if line, err = w.opener.Signature(text, signatures, key); err == nil {
			return line, nil
		}
	}
	return nil, err
}

// newest is the newest checkpoint of a log that this witness signed; an empty one at first.
func (w *Witness) newest(origin string) (globallog.Checkpoint, error) {
	note, err := w.state.Newest(origin)
	if err != nil || note == nil {
		return globallog.Checkpoint{Origin: origin}, err
	}
	text, signatures := splitNote(note)
	_, err = w.opener.Signature(text, signatures, w.cosigner.VerifierKey())
	if err == nil {
		var c globallog.Checkpoint
		if c, err = globallog.ParseCheckpoint(text); err == nil {
			return c, nil
		}
	}
	return globallog.Checkpoint{}, fault.New(fault.FailedPrecondition, "witness.state_damaged", "the checkpoint that this witness signed last is damaged; restore its folder from a copy that is as new").WithCause(err)
}

// Newest is the newest checkpoint of a log with the signatures of the log and of this witness; nil: none yet.
func (w *Witness) Newest(origin string) ([]byte, error) { return w.state.Newest(origin) }

// Origins are the logs that the witness knows.
func (w *Witness) Origins() (origins []string) {
	for origin := range w.logs {
		origins = append(origins, origin)
	}
	return origins
}
