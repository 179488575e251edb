package tamper

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/exportdir"
	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/adapters/witness"
	application "github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/test/testkit"
)

// isSigned reports whether the log signed a checkpoint.
func (i *installation) isSigned(note []byte) bool {
	_, _, err := application.OpenCheckpoint(note, signednote.Opener{}, i.verifierKeys()...)
	return err == nil
}

// anchors are those of a verification that has the key of the log, unless it is keyless.
func (i *installation) anchors() verify.Anchors {
	if i.keyless {
		return verify.Anchors{}
	}
	return verify.Anchors{IsSigned: i.isSigned}
}

// verifierKeys are those in the export folder.
func (i *installation) verifierKeys() (keys []string) {
	i.t.Helper()
	exports := testkit.Must(exportdir.Open(i.config.Erasure.ExportDirectory))
	for _, name := range testkit.Must(exports.List(i.t.Context(), "verifier-keys/")) {
		keys = append(keys, string(bytes.TrimSpace(testkit.Must(exports.Get(i.t.Context(), name)))))
	}
	return keys
}

// startWitness starts a witness, which the next node asks for its signatures. It returns its key.
func (i *installation) startWitness() (key string) {
	t := i.t
	folder, err := witness.OpenFolder(t.TempDir())
	require.NoError(t, err)
	cosigner := testkit.Must(signednote.NewCosigner("witness.example.org", testkit.Must(folder.Key())))
	server := httptest.NewServer(witness.NewServer(application.NewWitness(folder, cosigner, signednote.Opener{}, i.verifierKeys()...), slog.New(slog.DiscardHandler)).Handler())
	t.Cleanup(func() { server.Close(); require.NoError(t, folder.Close()) })
	i.config.GlobalLog.WitnessPolicy = filepath.Join(t.TempDir(), "policy")
	require.NoError(t, os.WriteFile(i.config.GlobalLog.WitnessPolicy, fmt.Appendf(nil, "witness W %s %s\nquorum W\n", cosigner.VerifierKey(), server.URL), 0o600))
	return cosigner.VerifierKey()
}

// keptCheckpoints are those of the export folder that the witnesses signed too.
func (i *installation) keptCheckpoints(witnesses ...string) (kept []globallog.Checkpoint) {
	i.t.Helper()
	return i.checkpointsIn(i.config.Erasure.ExportDirectory, witnesses...)
}

func (i *installation) checkpointsIn(folder string, witnesses ...string) (kept []globallog.Checkpoint) {
	i.t.Helper()
	exports, keys := testkit.Must(exportdir.Open(folder)), i.verifierKeys()
	for _, name := range testkit.Must(exports.List(i.t.Context(), application.CheckpointFolder)) {
		c, signers, err := application.OpenCheckpoint(testkit.Must(exports.Get(i.t.Context(), name)), signednote.Opener{}, append(keys, witnesses...)...)
		require.NoError(i.t, err)
		if len(signers) == len(witnesses) {
			kept = append(kept, c)
		}
	}
	return kept
}

// compareCheckpoints are the kinds of what a verification of the global log finds with checkpoints.
func (i *installation) compareCheckpoints(kept []globallog.Checkpoint) (kinds []verify.FindingKind) {
	i.t.Helper()
	require.NotEmpty(i.t, kept)
	report, err := verify.GlobalLog(i.t.Context(), i.openReader().GlobalLog, verify.Anchors{Kept: kept}, nil)
	require.NoError(i.t, err)
	for _, f := range report.Findings {
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

// beginIncarnation restores the database as it was before events that were signed: verification misses them, until a
// new incarnation says so in each log.
func (i *installation) beginIncarnation() {
	t := i.t
	require.Equal(t, []verify.FindingKind{verify.GlobalLogCut}, i.compareCheckpoints(i.keptCheckpoints()))
	i.serve()
	begun, err := i.server.App.BeginIncarnation(t.Context(), "Restored the backup of 1 March.", false, func(int, int) {})
	require.NoError(t, err)
	require.Equal(t, 2, begun.Number)
	require.EqualValues(t, begun.Logs, i.exec("SELECT FROM backbone.events WHERE type = 'backbone.log.restored'"))
	require.Empty(t, i.findings(i.openReader()))
	require.Empty(t, i.compareCheckpoints(i.keptCheckpoints()))
	_, err = i.server.App.BeginIncarnation(t.Context(), "Again.", false, func(int, int) {})
	require.Equal(t, "global_log.not_restored", fault.CodeOf(err))
}

// withstandPerfection lets a superuser change one event and compute everything again that follows from it: the
// checksums of the legal entity, the tiles, and the roots of the checkpoints. Nothing but a checkpoint outside of the
// database shows it. Then it is restored.
func (i *installation) withstandPerfection(t *testing.T) {
	kept, mirrored := i.keptCheckpoints(), i.checkpointsIn(i.config.Mirror.Directory)
	require.Empty(t, i.compareCheckpoints(kept))
	require.Empty(t, i.compareCheckpoints(mirrored))
	i.exec("SET session_replication_role = replica")
	tables := []string{"events", "log_tiles", "log_checkpoints"}
	for _, table := range tables {
		i.exec("CREATE TABLE before_" + table + " AS TABLE backbone." + table)
	}
	i.recompute()
	i.keyless = true
	require.Empty(t, i.findings(i.openReader()), "the attacker is perfect, but has no key to sign with")
	i.keyless = false
	require.Contains(t, i.compareCheckpoints(kept), verify.GlobalLogForked)
	require.Contains(t, i.compareCheckpoints(mirrored), verify.GlobalLogForked)
	for _, table := range tables {
		i.exec("BEGIN; DELETE FROM backbone." + table + "; INSERT INTO backbone." + table + " SELECT * FROM before_" + table + "; DROP TABLE before_" + table + "; COMMIT")
	}
	require.Empty(t, i.compareCheckpoints(kept))
}

// recompute changes when an invoice occurred, and what follows.
func (i *installation) recompute() {
	i.t.Helper()
	ctx, store := i.t.Context(), i.openReader()
	require.EqualValues(i.t, 1, i.exec(`UPDATE backbone.events SET occurred_at = occurred_at - interval '1 hour' WHERE (partition_id, sequence) = (
		SELECT partition_id, sequence FROM backbone.events WHERE type = 'ap.invoice.posted' ORDER BY sequence LIMIT 1)`))
	head, err := store.Chains().Head(ctx, i.entity.Partition)
	require.NoError(i.t, err)
	previous := head.Genesis
	events, err := store.Chains().ChainPage(ctx, i.entity.Partition, 0, 10_000)
	require.NoError(i.t, err)
	for _, e := range events {
		previous, _ = e.ChainChecksum(previous, nil)
		i.exec("UPDATE backbone.events SET checksum = $1 WHERE partition_id = $2 AND sequence = $3", previous[:], e.Partition, e.Sequence)
	}
	checkpoints, err := store.GlobalLog.Checkpoints(ctx, 0, 0, 10_000)
	require.NoError(i.t, err)
	ranges, err := store.GlobalLog.AllGlobalRanges(ctx, 0, 10_000)
	require.NoError(i.t, err)
	i.exec("DELETE FROM backbone.log_tiles")
	var tree globallog.Edge
	for _, r := range ranges {
		checksums, err := store.GlobalLog.Checksums(ctx, r.Partition, r.Sequence, int(r.Count))
		require.NoError(i.t, err)
		for _, checksum := range checksums {
			for _, tile := range tree.Append(checksum) {
				root := tile.Root()
				i.exec("INSERT INTO backbone.log_tiles (level, index, root, hashes) VALUES ($1, $2, $3, decode($4, 'hex'))", tile.Level, tile.Index, root[:], hexOf(tile.Hashes))
			}
			for _, c := range checkpoints {
				if c.Size == tree.Size() { // under a signature that does not fit
					root := tree.Root()
					text := globallog.Checkpoint{Origin: globallog.Origin(logName, c.Incarnation), Size: c.Size, Root: root}.Text()
					i.exec("UPDATE backbone.log_checkpoints SET root = $1, note = $2 WHERE size = $3", root[:], string(text)+string(c.Note[bytes.Index(c.Note, []byte("\n\n"))+1:]), c.Size)
				}
			}
		}
	}
}

func hexOf(hashes []event.Hash) (text string) {
	for _, h := range hashes {
		text += hex.EncodeToString(h[:])
	}
	return text
}
