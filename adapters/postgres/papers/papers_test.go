package papers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestPapers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	d := pgtest.Open(t, dsn)
	conformance.RunPapers(t, conformance.PapersHarness{
		Papers: d.Papers, Appender: d.Appender, Directory: d.Directory, Types: d.Registry,
		Age: func(t *testing.T, by time.Duration) {
			pgtest.Execute(t, dsn, fmt.Sprintf("UPDATE backbone.paper_contents SET stored_at = stored_at - interval '%d seconds'", int(by.Seconds())))
		},
	})
}

// TestPapers_Immutable: with the credentials of a node no bytes are changed, deleted or back-dated.
func TestPapers_Immutable(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.As("backbone_app", pgtest.Database(t)))
	for _, statement := range []string{
		"UPDATE backbone.paper_contents SET sealed = ''", "DELETE FROM backbone.paper_contents", "TRUNCATE backbone.paper_contents",
		"INSERT INTO backbone.paper_contents (partition_id, sha256, paper_id, sealed, stored_at) VALUES (1, sha256('a'), 'P', 'a', now() - interval '3 days')",
	} {
		_, err := conn.Exec(t.Context(), statement)
		require.ErrorContains(t, err, "permission denied", statement)
	}
	_, err := conn.Exec(t.Context(), "INSERT INTO backbone.paper_contents (partition_id, sha256, paper_id, sealed) VALUES (1, sha256('a'), 'P', 'b')")
	require.ErrorContains(t, err, "paper_contents_digest")
}
