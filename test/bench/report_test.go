//go:build bench

package bench

import (
	"fmt"
	"os"
	"testing"

	"github.com/erpbackbone/backbone/cmd/cli"
)

// TestReport measures everything and prints one table. Sections are sub-tests, so
// that -run can choose.
func TestReport(t *testing.T) {
	cli.TuneMemory() // as the binary does
	o := readOptions(t)
	cluster := startCluster(t, o)
	var figures table
	t.Run("append", func(t *testing.T) { reportAppend(t, o, cluster, &figures) })
	t.Run("globallog", func(t *testing.T) { reportGlobalLog(t, o, cluster, &figures) })
	t.Run("conditions", func(t *testing.T) { reportConditions(t, o, cluster, &figures) })
	t.Run("personal", func(t *testing.T) { reportPersonal(t, o, cluster, &figures) })
	t.Run("intents", func(t *testing.T) { reportIntents(t, o, cluster, &figures) })
	t.Run("accounting", func(t *testing.T) { reportAccounting(t, o, cluster, &figures) })
	t.Run("reads", func(t *testing.T) { reportReads(t, o, cluster, &figures) })
	t.Run("delivery", func(t *testing.T) { reportDelivery(t, o, cluster, &figures) })
	shared := &bookFixtures{t: t, options: o, cluster: cluster}
	t.Run("projections", func(t *testing.T) { reportProjections(t, o, shared, &figures) })
	t.Run("rebuild", func(t *testing.T) { reportRebuild(t, o, shared, &figures) })
	t.Run("subscriptions", func(t *testing.T) { reportSubscriptions(t, o, shared, &figures) })
	t.Run("idle", func(t *testing.T) { reportIdle(t, o, shared, &figures) })
	t.Run("audit", func(t *testing.T) { reportAudit(t, o, shared, &figures) })
	t.Run("archive", func(t *testing.T) { reportArchive(t, o, &bookFixtures{t: t, options: o, cluster: cluster}, &figures) })
	t.Run("growth", func(t *testing.T) { reportGrowth(t, o, cluster, &figures) })
	t.Run("fanout", func(t *testing.T) { reportFanout(t, o, shared, &figures) })
	fmt.Println()
	figures.print(os.Stdout)
}
