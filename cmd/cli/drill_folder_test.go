package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

func TestDrillFolder(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	_, err := newDrillFolder(work, 1<<60, false)
	require.Equal(t, "drill.no_space", fault.CodeOf(err))
	_, err = newDrillFolder(filepath.Join(work, "none"), 1, false)
	require.Equal(t, "drill.work_unusable", fault.CodeOf(err))

	running, err := newDrillFolder(work, 1, false)
	require.NoError(t, err)
	kept, err := newDrillFolder(work, 1, true)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(kept.at("pg"), 0o700))
	require.NoError(t, kept.end())
	killed, err := newDrillFolder(work, 1, false)
	require.NoError(t, err)
	require.NoError(t, killed.lock.Close()) // as the end of its process does
	info, err := os.Stat(killed.path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	elsewhere := t.TempDir()
	link := filepath.Join(work, drillFolderPrefix+"link")
	require.NoError(t, os.Symlink(elsewhere, link))

	var out strings.Builder
	require.NoError(t, removeKilledDrills(t.Context(), work, &out))
	require.Equal(t, "Removed "+killed.path+", which a killed drill left.\n", out.String())
	require.NoDirExists(t, killed.path)
	for _, path := range []string{running.path, kept.path, elsewhere} {
		require.DirExists(t, path)
	}
	require.NoError(t, running.end())
	require.NoDirExists(t, running.path)
}
