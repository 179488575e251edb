package cli

import (
	"bufio"
	"context"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/witness"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/domain/fault"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestWitness runs a witness as an auditor does, and demands its signature by the policy that it printed.
func TestWitness(t *testing.T) {
	t.Parallel()
	l := newSignedLog(t)
	folder := t.TempDir()
	lines, printed := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	o := witnessOptions{Listen: "127.0.0.1:0", Folder: filepath.Join(folder, "witness"), Name: "witness.example.org/w1", Logs: []string{l.key}, Out: printed, Err: io.Discard}
	go func() { ended <- serveWitness(ctx, o) }()
	out := bufio.NewScanner(lines)
	require.True(t, out.Scan())
	require.Contains(t, out.Text(), "Witness of books.example.org/1 at http://127.0.0.1:")
	require.True(t, out.Scan())
	line := out.Text()
	require.True(t, out.Scan())
	words := strings.Fields(line)
	require.Len(t, words, 4, line)
	policy, demanding := filepath.Join(folder, "policy"), filepath.Join(folder, "demanding")
	require.NoError(t, os.WriteFile(policy, []byte("log "+l.key+"\n"+line+"\nquorum W1\n"), 0o600))
	require.NoError(t, os.WriteFile(demanding, []byte("log "+l.key+"\n"+line+"\nwitness W2 other+00000000+AAAA\ngroup both all W1 W2\nquorum both\n"), 0o600))

	note := l.grow(10)
	client := witness.NewClient(words[3], words[2], 10*time.Second)
	signature, err := client.AddCheckpoint(t.Context(), domain.Extension{Checkpoint: note})
	require.NoError(t, err)
	cosigned := slices.Concat(note, signature)
	proof := testkit.Must(globallog.NewProver(l.database.GlobalLog).Prove(t.Context(), ports.EventPosition{Partition: l.recorder.Partitions[0], Sequence: 3}, nil))
	plain := proof.Encode()
	proof.Checkpoint = cosigned
	witnessed := proof.Encode()
	checksum := l.recorder.Checksums[l.recorder.Partitions[0]][2]
	for name, c := range map[string]struct {
		proof  []byte
		policy string
		keys   []string
		code   string
		says   string
	}{
		"witnessed":                 {witnessed, policy, nil, "", "Signed by witnesses too: witness.example.org/w1."},
		"nothing is demanded":       {witnessed, "", []string{l.key}, "", "Proven"},
		"not witnessed":             {plain, policy, nil, "global_log.not_witnessed", "Not proven"},
		"another witness is missed": {witnessed, demanding, nil, "note.key_invalid", ""},
		"no policy":                 {witnessed, policy + "x", nil, "global_log.policy_unreadable", ""},
		"no such policy":            {witnessed, filepath.Join(folder, "witness", "witness.key"), nil, "global_log.policy_malformed", ""},
	} {
		var said strings.Builder
		_, err := verifyProof(verifyProofOptions{File: "-", In: strings.NewReader(string(c.proof)), Keys: c.keys, Policy: c.policy, Checksum: hex.EncodeToString(checksum[:]), output: output{out: &said}})
		require.Equal(t, c.code, fault.CodeOf(err), name)
		require.Contains(t, said.String(), c.says, name)
	}
	kept := filepath.Join(folder, "kept")
	require.NoError(t, os.MkdirAll(kept, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(kept, "1"), cosigned, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(kept, "2"), l.grow(5), 0o600))
	anchors, err := readAnchors([]string{kept}, nil, policy)
	require.NoError(t, err)
	require.Len(t, anchors.Kept, 1, "the one that the witness signed")

	require.Equal(t, "witness.folder_in_use", fault.CodeOf(serveWitness(t.Context(), o)))
	stop()
	require.NoError(t, <-ended)
}
