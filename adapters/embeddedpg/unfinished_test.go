package embeddedpg_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
)

// TestStart_IgnoresInitdbOfKilledStart writes into the folder of a killed start, as an initdb
// that outlives it does.
func TestStart_IgnoresInitdbOfKilledStart(t *testing.T) {
	requirePostgres(t)
	t.Parallel()
	dir := t.TempDir()
	earlier := filepath.Join(dir, "pg", "data.initializing", "base", "1")
	require.NoError(t, os.MkdirAll(earlier, 0o700))
	stop, fills := make(chan struct{}), sync.WaitGroup{}
	fills.Go(func() {
		pace := time.NewTicker(100 * time.Microsecond)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-pace.C:
			}
			if os.WriteFile(filepath.Join(earlier, fmt.Sprint(n)), nil, 0o600) != nil {
				_ = os.MkdirAll(earlier, 0o700)
			}
		}
	})
	end := sync.OnceFunc(func() { close(stop); fills.Wait() })
	t.Cleanup(end)
	cluster := start(t, embeddedpg.Config{DataDir: dir})
	end()
	require.Equal(t, "1", query(t, cluster.SuperuserDSN("postgres"), "SELECT '1'"))
}
