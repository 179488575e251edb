package embeddedpg

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Between fork and exec a child has copies of all descriptors of its parent. The lock must be
// released even then.
func TestRelease_DuringForkOfChild(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d, err := openDirectory(root)
	require.NoError(t, err)
	fd, err := syscall.Dup(int(d.lock.Fd()))
	require.NoError(t, err)
	copied := os.NewFile(uintptr(fd), "lock")
	t.Cleanup(func() { require.NoError(t, copied.Close()) })
	require.NoError(t, d.release())
	again, err := openDirectory(root)
	require.NoError(t, err)
	require.NoError(t, again.release())
}
