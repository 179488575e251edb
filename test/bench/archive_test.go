//go:build bench

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/exportdir"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/adapters/s3"
	"github.com/erpbackbone/backbone/application/archive"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/configs/demo"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/kmstest"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/testkit/s3test"
)

// archiveFixture are books that a node with keys archives.
type archiveFixture struct {
	*books
	app      *wire.App
	conn     *pgx.Conn
	folder   string
	archived []event.ID
}

// bytes measures a table of the log of the legal entity, with its indexes.
func (f *archiveFixture) bytes(t *testing.T, table string) (n int64) {
	require.NoError(t, f.conn.QueryRow(t.Context(), "SELECT pg_total_relation_size($1::regclass)", table).Scan(&n))
	return n
}

func (f *archiveFixture) payloadTable() string {
	return fmt.Sprintf("backbone.event_payloads_p%d", uint32(f.whole.Partition))
}

// read reads random events of those that are archived sooner or later.
func (f *archiveFixture) read(t *testing.T, o options) sample {
	return drive(t, 1, o.period, func(ctx context.Context, _ int) (int, error) {
		_, err := f.app.Store.Events.EventByID(ctx, f.whole.Partition, f.archived[rand.IntN(len(f.archived))])
		return 1, err
	})
}

// verify verifies the legal entity, and returns events and bytes of payloads per second.
func (f *archiveFixture) verify(t *testing.T, payloads int64) (events, bytes float64) {
	started := time.Now()
	reports, err := verify.Run(t.Context(), f.app.Store.Chains, demo.Tenant, []string{f.whole.Code}, nil)
	require.NoError(t, err)
	require.Empty(t, reports[0].Findings)
	elapsed := time.Since(started).Seconds()
	return float64(reports[0].Events) / elapsed, float64(payloads) / elapsed
}

// bucketOf copies the files of segments into a bucket.
func bucketOf(t *testing.T, from ports.ExportStore, segments []ports.ArchivedSegment) ports.ExportStore {
	server := s3test.Start(t)
	bucket, err := s3.New(t.Context(), s3.Options{
		Endpoint: server.Endpoint, Region: server.Region, Bucket: server.NewBucket(t, s3test.Versioned), CredentialsFile: server.CredentialsFile, Profile: server.Profile,
		Limits: s3.Limits{Timeout: time.Minute, Tries: 3, Backoff: 10 * time.Millisecond},
	})
	require.NoError(t, err)
	for _, s := range segments {
		require.NoError(t, bucket.PutIfAbsent(t.Context(), s.Object, testkit.Must(from.Get(t.Context(), s.Object))))
	}
	return bucket
}

// reportArchive measures the archive of business transactions: its run, the space that it frees, reads and verification.
func reportArchive(t *testing.T, o options, shared *bookFixtures, figures *table) {
	f := &archiveFixture{books: shared.books(t), folder: filepath.Join(t.TempDir(), "archive")}
	require.NoError(t, os.Mkdir(f.folder, 0o700))
	kms := kmstest.Serve(t, nil)
	server, _, stop := startNode(t, f.dsn, true, func(c *configs.Config, _ *wire.Options) {
		c.KMS.Endpoint, c.KMS.CredentialsFile, c.Erasure.ExportDirectory, c.Archive.Directory = kms.Endpoint, kms.Credentials, t.TempDir(), f.folder
		c.Database.EraserDSN = configs.DSN(strings.ReplaceAll(asApp(t, f.dsn), "backbone_app", "backbone_eraser"))
	})
	defer stop()
	f.app = server.App
	awaitCaughtUp(t, f.app)
	f.conn = testkit.Must(pgx.Connect(t.Context(), f.dsn))
	defer func() { require.NoError(t, f.conn.Close(context.Background())) }()
	var definition string
	require.NoError(t, f.conn.QueryRow(t.Context(), "SELECT pg_get_functiondef('backbone.archive_payloads'::regproc)").Scan(&definition))
	testkit.Must(f.conn.Exec(t.Context(), strings.Replace(definition, "interval '2 years'", "interval '0'", 1)))
	rows := testkit.Must(f.conn.Query(t.Context(), "SELECT uuid_send(id) FROM backbone.events WHERE partition_id = $1 AND type IN ('ap.invoice.submitted', 'gl.journal.posted')", int32(f.whole.Partition)))
	for rows.Next() {
		var id []byte
		require.NoError(t, rows.Scan(&id))
		f.archived = append(f.archived, event.ID(id))
	}
	var payloads int64
	require.NoError(t, f.conn.QueryRow(t.Context(), "SELECT sum(octet_length(payload::text)) FROM backbone.event_payloads WHERE partition_id = $1", int32(f.whole.Partition)).Scan(&payloads))
	execute(t, f.dsn, "VACUUM ANALYZE", "CHECKPOINT")
	payloadsBefore, snapshotsBefore := f.bytes(t, f.payloadTable()), f.bytes(t, "backbone.entity_snapshots")+f.bytes(t, "backbone.stream_snapshots")+f.bytes(t, "backbone.archive_states")
	online := f.read(t, o)
	verifyOnline, verifyOnlineBytes := f.verify(t, payloads)

	archiver := testkit.Must(f.app.Archiver(t.Context()))
	archiver.Clock = testkit.NewClock(time.Now().AddDate(3, 0, 0))
	started := time.Now()
	result, err := archiver.Run(t.Context(), archive.Selection{Before: time.Now(), LegalEntities: []ports.LegalEntity{f.whole.LegalEntity}}, func(ports.LegalEntity, uint64, uint64) {})
	require.NoError(t, err)
	elapsed := time.Since(started).Seconds()
	execute(t, f.dsn, "VACUUM FULL "+f.payloadTable(), "CHECKPOINT")
	payloadsAfter, snapshotsAfter := f.bytes(t, f.payloadTable()), f.bytes(t, "backbone.entity_snapshots")+f.bytes(t, "backbone.stream_snapshots")+f.bytes(t, "backbone.archive_states")
	archived := f.read(t, o)
	verifyArchived, verifyArchivedBytes := f.verify(t, payloads)
	segments := testkit.Must(f.app.Store.Archive.Segments(t.Context(), f.whole.Partition, 0, 1000))
	folder := testkit.Must(exportdir.At(f.folder))
	unreadIn := func(store ports.ExportStore) sample {
		return drive(t, 1, o.period, func(ctx context.Context, _ int) (int, error) {
			_, err := archive.NewFiles(store, prometheus.New()).Records(ctx, segments[rand.IntN(len(segments))])
			return 1, err
		})
	}
	unread, unreadInBucket := unreadIn(folder), unreadIn(bucketOf(t, folder, segments))
	per := func(bytes int64) string { return fmt.Sprintf("%.0f bytes", float64(bytes)/float64(f.whole.events)) }
	figures.addText("Archive: a run with its states", "%s, %.1f MB/s; %d of %d events", perSecond(float64(result.Payloads)/elapsed, "payloads"), float64(result.Lines)/elapsed/1e6, result.Payloads, f.whole.events)
	figures.addText("   payload table for each event of the log, before and after", "%s, %s", per(payloadsBefore), per(payloadsAfter))
	figures.addText("   states for each event, before and after", "%s, %s", per(snapshotsBefore), per(snapshotsAfter))
	figures.addText("   files for each event, and before compression", "%s, %s", per(int64(result.Stored)), per(int64(result.Lines)))
	figures.addText("   an event by id, online: p50, p99", "%s, %s", latency(online.quantile(0.5)), latency(online.quantile(0.99)))
	figures.addText("   archived, in files that were read before", "%s, %s", latency(archived.quantile(0.5)), latency(archived.quantile(0.99)))
	figures.addText("   a file that was not, of "+fmt.Sprint(len(segments)), "%s, %s", latency(unread.quantile(0.5)), latency(unread.quantile(0.99)))
	figures.addText("   such a file in a bucket of Versity S3 Gateway on this machine", "%s, %s", latency(unreadInBucket.quantile(0.5)), latency(unreadInBucket.quantile(0.99)))
	figures.addText("   verification online", "%s, %.1f MB/s of payloads", perSecond(verifyOnline, "events"), verifyOnlineBytes/1e6)
	figures.addText("   from the archive", "%s, %.1f MB/s of payloads", perSecond(verifyArchived, "events"), verifyArchivedBytes/1e6)
	require.NoError(t, os.RemoveAll(f.folder))
}
