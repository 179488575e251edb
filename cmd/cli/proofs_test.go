package cli

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// signedLog is a log of some events with a checkpoint after each growth.
type signedLog struct {
	t        *testing.T
	database *memory.Database
	recorder *conformance.Recorder
	signer   *signednote.Signer
	key      string
}

func newSignedLog(t *testing.T) *signedLog {
	l := &signedLog{t: t, database: memory.New(memory.Config{})}
	l.recorder = conformance.NewRecorder(t, l.database.Directory, l.database.Registry, l.database.Appender, 1)
	l.signer = testkit.Must(signednote.NewSigner("books.example.org/1", "key", testkit.NewSigningKey(0)))
	l.key = testkit.Must(l.signer.VerifierKey(t.Context()))
	return l
}

// grow records events, and returns the checkpoint of all.
func (l *signedLog) grow(events int) (note []byte) {
	l.recorder.Record(l.t, l.recorder.Partitions[0], events)
	_, err := l.database.GlobalLog.ExtendGlobalLog(l.t.Context(), l.recorder.Partitions, 1000)
	require.NoError(l.t, err)
	c := domain.Checkpoint{Origin: "books.example.org/1", Size: testkit.Must(l.database.GlobalLog.GlobalSize(l.t.Context()))}
	c.Root = testkit.Must(domain.Root(c.Size, func(level int, from, n uint64) ([]event.Hash, error) {
		return l.database.GlobalLog.GlobalHashes(l.t.Context(), level, from, n)
	}))
	note = testkit.Must(l.signer.SignNote(l.t.Context(), c.Text()))
	require.True(l.t, testkit.Must(l.database.GlobalLog.RecordCheckpoint(l.t.Context(), ports.SignedCheckpoint{Incarnation: 1, Size: c.Size, Root: c.Root, Note: note})))
	return note
}

// TestVerifyProof checks proofs of events and of extensions as an auditor does, with files alone.
func TestVerifyProof(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	l := newSignedLog(t)
	earlier := l.grow(5)
	l.grow(20)
	prover, place := globallog.NewProver(l.database.GlobalLog), ports.EventPosition{Partition: l.recorder.Partitions[0], Sequence: 7}
	head := testkit.Must(l.database.Chains().Head(t.Context(), place.Partition))
	evidence := testkit.Must(verify.EvidenceOf(t.Context(), l.database.Chains(), head, place))
	full, bare := testkit.Must(prover.Prove(t.Context(), place, evidence)), testkit.Must(prover.Prove(t.Context(), place, nil))
	moved := full
	moved.Position++
	edited := full
	edited.Extra = []byte(strings.Replace(string(evidence), `"legal_entity":"`, `"legal_entity":"X`, 1))
	extension := testkit.Must(prover.ProveExtension(t.Context(), domain.Checkpoint{Size: 5}))
	sums := l.recorder.Checksums[place.Partition]
	checksum, otherChecksum := hex.EncodeToString(sums[6][:]), hex.EncodeToString(sums[7][:])
	key, proof, bareProof, extended := file("log.vkey", []byte(l.key+"\n")), file("full", full.Encode()), file("bare", bare.Encode()), file("extension", extension.Encode())
	movedProof, editedProof, cut := file("moved", moved.Encode()), file("edited", edited.Encode()), file("cut", full.Encode()[:200])
	since, other := file("earlier", earlier), file("other", newSignedLog(t).grow(6))
	const otherKey = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"

	for name, c := range map[string]struct {
		options verifyProofOptions
		proven  bool
		code    string
		says    string
	}{
		"event":                     {verifyProofOptions{File: proof, Keys: []string{key}}, true, "", "Proven: it is at position 6 of the log books.example.org/1, of which 25 events were signed."},
		"event, as JSON":            {verifyProofOptions{File: proof, Keys: []string{l.key}, output: output{json: true}}, true, "", `"proven": true`},
		"event of a checksum":       {verifyProofOptions{File: proof, Keys: []string{key}, Checksum: checksum}, true, "", "Proven"},
		"event of another checksum": {verifyProofOptions{File: proof, Keys: []string{key}, Checksum: otherChecksum}, false, "global_log.not_included", "Not proven"},
		"no event":                  {verifyProofOptions{File: bareProof, Keys: []string{key}}, true, "global_log.checksum_missing", ""},
		"checksum":                  {verifyProofOptions{File: bareProof, Keys: []string{key}, Checksum: checksum}, true, "", "Proven: it is at position 6"},
		"another checksum":          {verifyProofOptions{File: bareProof, Keys: []string{key}, Checksum: otherChecksum}, false, "global_log.not_included", "Not proven"},
		"no checksum":               {verifyProofOptions{File: bareProof, Keys: []string{key}, Checksum: "12"}, true, "global_log.checksum_missing", ""},
		"another position":          {verifyProofOptions{File: movedProof, Keys: []string{key}}, false, "global_log.not_included", "Not proven"},
		"changed event":             {verifyProofOptions{File: editedProof, Keys: []string{key}}, false, "verify.evidence_invalid", "Not proven"},
		"changed event, as JSON":    {verifyProofOptions{File: editedProof, Keys: []string{key}, output: output{json: true}}, false, "verify.evidence_invalid", `"code": "verify.evidence_invalid"`},
		"half a proof":              {verifyProofOptions{File: cut, Keys: []string{key}}, false, "global_log.proof_malformed", "Not proven"},
		"another key":               {verifyProofOptions{File: proof, Keys: []string{otherKey}}, false, "note.not_verified", "Not proven"},
		"no key":                    {verifyProofOptions{File: proof}, true, "note.key_missing", ""},
		"no such key":               {verifyProofOptions{File: proof, Keys: []string{"a+b+c"}}, true, "note.key_invalid", ""},
		"no file":                   {verifyProofOptions{File: proof + "x", Keys: []string{key}}, true, "global_log.proof_unreadable", ""},
		"extension":                 {verifyProofOptions{File: extended, Keys: []string{key}, Since: since}, true, "", "begins with its first 5"},
		"extension of another log":  {verifyProofOptions{File: extended, Keys: []string{key}, Since: other}, false, "global_log.inconsistent", "Not proven"},
		"extension of nothing":      {verifyProofOptions{File: extended, Keys: []string{key}}, true, "global_log.checkpoint_unreadable", ""},
		"extension of no file":      {verifyProofOptions{File: extended, Keys: []string{key}, Since: since + "x"}, true, "global_log.checkpoint_unreadable", ""},
	} {
		var out strings.Builder
		c.options.out = &out
		isProven, err := verifyProof(c.options)
		require.Equal(t, c.code, fault.CodeOf(err), name)
		require.Equal(t, c.proven, isProven, name)
		require.Contains(t, out.String(), c.says, name)
		if c.says == "" {
			require.Empty(t, out.String(), name)
		}
	}
}

// TestReadAnchors reads checkpoints of files, folders and export folders, and takes none that the key did not sign.
func TestReadAnchors(t *testing.T) {
	t.Parallel()
	l := newSignedLog(t)
	exports := t.TempDir()
	folder := filepath.Join(exports, "checkpoints", "000001")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	for _, name := range []string{"1", "2"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), l.grow(5), 0o600))
	}
	for _, path := range []string{exports, filepath.Join(exports, "checkpoints"), folder} {
		anchors, err := readAnchors([]string{path}, []string{l.key}, "")
		require.NoError(t, err)
		require.Len(t, anchors.Kept, 2)
	}
	anchors, err := readAnchors([]string{filepath.Join(folder, "2")}, []string{l.key}, "")
	require.NoError(t, err)
	require.EqualValues(t, 10, anchors.Kept[0].Size)
	require.True(t, anchors.IsSigned(l.grow(1)))
	require.False(t, anchors.IsSigned([]byte("x")))
	_, err = readAnchors([]string{exports}, nil, "")
	require.Equal(t, "note.key_missing", fault.CodeOf(err))
	_, err = readAnchors([]string{t.TempDir()}, []string{l.key}, "")
	require.Equal(t, "global_log.checkpoint_unreadable", fault.CodeOf(err))
	_, err = readAnchors([]string{filepath.Join(exports, "x")}, []string{l.key}, "")
	require.Equal(t, "global_log.checkpoint_unreadable", fault.CodeOf(err))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "3"), []byte("books.example.org/1\n1\nAAAA\n\n— x AAAA\n"), 0o600))
	_, err = readAnchors([]string{exports}, []string{l.key}, "")
	require.Equal(t, "note.not_verified", fault.CodeOf(err))
	require.ErrorContains(t, err, filepath.Join(folder, "3"))
}
