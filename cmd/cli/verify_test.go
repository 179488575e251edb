package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/moduletest"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	v := verdict{finished: true, elapsed: time.Second, reports: []verify.EntityReport{{LegalEntity: "DEMF", Events: 1, FindingList: verify.FindingList{Findings: []verify.Finding{
		{Kind: verify.PayloadMismatch, Sequence: 1, EventID: "01JQ8E6Z6G3V5T8C9N2M4K7R1P", Detail: "changed"},
		{Kind: verify.HeadBeyondEnd, Sequence: 7, Detail: "gone"},
	}}}}}
	var out strings.Builder
	require.NoError(t, printPage(&out, func(p *page) { p.verdict(&v) }))
	require.Contains(t, out.String(), "DEMF sequence 1 (event 01JQ8E6Z6G3V5T8C9N2M4K7R1P): payload_mismatch: changed\n")
	require.Contains(t, out.String(), "DEMF sequence 7: head_beyond_end: gone\n")
	require.Contains(t, out.String(), "TAMPERED (2 findings)")
}

// TestExportLog_administrativeLog verifies the administrative log that bootstrap began from its
// export file, before and after an edit of the file.
func TestExportLog_administrativeLog(t *testing.T) {
	t.Parallel()
	dsn := moduletest.Database(t, modules.BuiltIn()...)
	config := configs.Default()
	config.Database.DSN = configs.DSN(as(t, "backbone_app", dsn))
	_, err := bootstrap(t.Context(), config, bootstrapOptions{Modules: modules.BuiltIn(), LogName: "books.example.org", Tenant: "acme", Admin: "p-admin"})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "administrative.jsonl")
	var note bytes.Buffer
	require.NoError(t, exportLog(t.Context(), exportLogOptions{
		DSN: as(t, "backbone_reader", dsn), LegalEntity: ports.AdministrativeCode, File: file, output: output{err: &note},
	}))
	require.Contains(t, note.String(), "_ADMIN: ")
	verifyFile := func() (sound bool, printed string) {
		var out bytes.Buffer
		sound, err := verifyLog(t.Context(), verifyOptions{Dumps: []string{file}, output: output{out: &out, err: &note}})
		require.NoError(t, err)
		return sound, out.String()
	}
	sound, printed := verifyFile()
	require.True(t, sound, printed)
	require.Contains(t, printed, "_ADMIN")

	exported, err := os.ReadFile(file)
	require.NoError(t, err)
	edited := bytes.Replace(exported, []byte(`"actor_id":"`), []byte(`"actor_id":"x`), 1)
	require.NotEqual(t, exported, edited)
	require.NoError(t, os.WriteFile(file, edited, 0o600))
	sound, printed = verifyFile()
	require.False(t, sound)
	require.Contains(t, printed, "checksum_mismatch")
	require.Contains(t, printed, "TAMPERED")
}
