package kmsd_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/test/conformance"
)

// crashVariable holds the key folder of a child process. The child is this test binary and kills
// itself while it writes a file, so that no clean-up runs.
const crashVariable = "BACKBONE_KMSD_CRASH"

// TestCrashChildProcess is the child; without crashVariable it is skipped. It kills itself at the
// n-th file that it writes.
func TestCrashChildProcess(t *testing.T) {
	folder, n, ok := strings.Cut(os.Getenv(crashVariable), "|")
	if !ok {
		t.Skip("runs as the child of TestCreateKeyAfterCrash")
	}
	r := &serverFixture{folder: folder, clock: conformance.NewClock(), audit: &lines{}}
	r.open(t)
	written := 0
	r.OnUnfinishedFile(func() {
		if written++; written == len(n) {
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
			select {}
		}
	})
	id := r.newKey(t)                                                          // two files
	r.must(t, "DisableKey", `{"KeyId":"`+id+`"}`)                              // one file
	r.must(t, "CreateAlias", `{"AliasName":"alias/x","TargetKeyId":"`+id+`"}`) // one file
}

func TestCreateKeyAfterCrash(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		died, n string
		keys    int
		state   string
	}{
		{"before the state is in place", "1", 1, ""},
		{"before the key is in place", "11", 1, ""},
		{"before the change is in place", "111", 2, "Enabled"},
		{"before the alias is in place", "1111", 2, "Disabled"},
	} {
		t.Run(test.died, func(t *testing.T) {
			t.Parallel()
			r := newServerFixture(t)
			kept := r.newKey(t)
			require.NoError(t, r.Close())
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashChildProcess$")
			child.Env = append(os.Environ(), crashVariable+"="+r.folder+"|"+test.n)
			output, err := child.CombinedOutput()
			var died *exec.ExitError
			require.ErrorAs(t, err, &died, string(output))
			require.Equal(t, syscall.SIGKILL, died.Sys().(syscall.WaitStatus).Signal(), string(output))
			unfinished, err := filepath.Glob(filepath.Join(r.folder, ".tmp-*"))
			require.NoError(t, err)
			require.Len(t, unfinished, 1)

			r.open(t)
			unfinished, err = filepath.Glob(filepath.Join(r.folder, ".tmp-*"))
			require.NoError(t, err)
			require.Empty(t, unfinished)
			require.Equal(t, "Enabled", r.state(t, kept))
			keys, err := filepath.Glob(filepath.Join(r.folder, "*.key"))
			require.NoError(t, err)
			states, err := filepath.Glob(filepath.Join(r.folder, "*.state"))
			require.NoError(t, err)
			require.Len(t, keys, test.keys)
			require.Len(t, states, len(keys))
			for _, path := range keys {
				if id := strings.TrimSuffix(filepath.Base(path), ".1.key"); id != kept {
					require.Equal(t, test.state, r.state(t, id))
				}
			}
			status, _ := r.call(t, kmsd.BreakGlass, "DescribeKey", `{"KeyId":"alias/x"}`)
			require.Equal(t, http.StatusBadRequest, status)
		})
	}
}
