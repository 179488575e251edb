package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/test/testkit"
)

// drillReport is the answer of `backbone drill restore --json`.
type drillReport struct {
	Verdict    string   `json:"verdict"`
	Findings   []string `json:"findings"`
	NotChecked []string `json:"not_checked"`
	Backup     struct {
		Folder     string `json:"folder"`
		Format     string `json:"format"`
		IsVerified bool   `json:"files_verified"`
	} `json:"backup"`
	Skipped []struct {
		Name string `json:"name"`
	} `json:"skipped"`
	Lacks struct {
		SignedEvents uint64 `json:"signed_events"`
		HeadEvents   uint64 `json:"head_events"`
		Erasures     int    `json:"erasures"`
	} `json:"lacks"`
	Events       uint64 `json:"events"`
	Keys         int    `json:"restored_keys"`
	Receipts     int    `json:"replayed_receipts"`
	Kept         string `json:"kept"`
	Verification struct {
		Sound     bool `json:"sound"`
		GlobalLog struct {
			Size     uint64 `json:"size"`
			Compared int    `json:"compared_checkpoints"`
		} `json:"global_log"`
	} `json:"verification"`
}

// drillFixture is a folder of backups and a folder for the work of drills.
type drillFixture struct{ backups, work string }

func newDrillFixture(t *testing.T) drillFixture {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "drill-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	f := drillFixture{filepath.Join(dir, "backups"), filepath.Join(dir, "work")}
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // PostgreSQL may run as another user
	for _, folder := range []string{f.backups, f.work} {
		require.NoError(t, os.Mkdir(folder, 0o700))
	}
	return f
}

// backUp makes a base backup of the running PostgreSQL of a data folder.
func (f drillFixture) backUp(t *testing.T, dataDir, name string, flags ...string) {
	t.Helper()
	programs, _, err := embeddedpg.FindBinaries("")
	require.NoError(t, err)
	args := append([]string{"--dbname", superuser(t, dataDir), "--pgdata", filepath.Join(f.backups, name), "--checkpoint", "fast"}, flags...)
	out, err := exec.Command(filepath.Join(programs, "pg_basebackup"), args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// drill runs a drill, whose report stays empty if there is none.
func (f drillFixture) drill(t *testing.T, flags ...string) (r drillReport, ran result) {
	t.Helper()
	ran = command(t, nil, append([]string{"drill", "restore", "--backups", f.backups, "--work", f.work, "--json"}, flags...)...)
	if ran.stdout != "" {
		require.NoError(t, json.Unmarshal([]byte(ran.stdout), &r), ran)
	}
	return r, ran
}

// requireNothingLeft requires that drills left nothing behind.
func (f drillFixture) requireNothingLeft(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(f.work)
	require.NoError(t, err)
	require.Empty(t, left)
}

// contents are the digests of all files below folders.
func contents(t *testing.T, folders ...string) map[string][32]byte {
	t.Helper()
	out := map[string][32]byte{}
	for _, folder := range folders {
		require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			out[path] = sha256.Sum256(content)
			return err
		}))
	}
	return out
}

// TestRestoreDrill restores backups from before an erasure and the rotation of keys after it, while the server runs on.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	f := newDrillFixture(t)
	d := startOn(t, copyOfBooks(t), recoveryStart)
	s := newPersonFixture(t, d, "E-700", "USMF", "DEMF")
	s.hire(t, s.here, 3)
	other := &personFixture{module: s.module, person: "E-701"}
	other.hire(t, s.here, 1)
	f.backUp(t, d.dataDir, "z-older", "--format", "tar", "--gzip")
	s.hire(t, s.here, 1)
	f.backUp(t, d.dataDir, "a-newer")
	require.NoError(t, os.MkdirAll(filepath.Join(f.backups, "unfinished"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(f.backups, "unfinished", "PG_VERSION"), []byte("15\n"), 0o600))

	// After the backups: an erasure, a rotation, more events, and a checkpoint of them, which the server exports at its end.
	eraseSubject(t, s.officer, s.approver, s.subject)
	rotated := command(t, nil, "keys", "rotate", "--data-dir", d.dataDir)
	require.Zero(t, rotated.code, rotated)
	other.hire(t, s.here, 5)
	code, err := d.interrupt()
	require.NoError(t, err)
	require.Zero(t, code)
	d = startOn(t, d.dataDir, recoveryStart)
	heads := filepath.Join(t.TempDir(), "heads.json")
	require.Zero(t, command(t, nil, "verify", "--data-dir", d.dataDir, "--export-head", heads).code)
	production := []string{d.Exports, filepath.Join(d.dataDir, "kms"), f.backups}
	before := contents(t, production...)

	report, ran := f.drill(t, "--data-dir", d.dataDir, "--head", heads, "--keep")
	require.Zero(t, ran.code, ran)
	require.Equal(t, "sound", report.Verdict)
	require.Equal(t, filepath.Join(f.backups, "a-newer"), report.Backup.Folder, "the newest, whatever its name")
	require.True(t, report.Backup.IsVerified)
	require.Equal(t, "unfinished", report.Skipped[0].Name)
	require.True(t, report.Verification.Sound)
	require.Positive(t, report.Verification.GlobalLog.Compared, "with the checkpoint from before the backup")
	require.Greater(t, report.Lacks.SignedEvents, uint64(5))
	require.GreaterOrEqual(t, report.Lacks.HeadEvents, uint64(5))
	require.Equal(t, []int{1, 1}, []int{report.Receipts, report.Lacks.Erasures})
	require.Positive(t, report.Keys, "the rotation has ended the epoch that the backup knows")
	require.Empty(t, report.NotChecked)
	require.NotContains(t, ran.stdout+ran.stderr, "Ada")

	copied, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: report.Kept, Restored: true})
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), copied.SuperuserDSN("backbone"))
	require.NoError(t, err)
	keysOf := func(subject string) (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM keystore.data_subject_keys WHERE subject_id = $1", subject).Scan(&n))
		return n
	}
	require.Zero(t, keysOf(s.subject), "the person stays erased")
	require.Positive(t, keysOf("employee:E-701"))
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, copied.Stop(t.Context()))
	require.NoError(t, os.RemoveAll(report.Kept))
	f.requireNothingLeft(t)

	require.NoError(t, os.Rename(filepath.Join(f.backups, "a-newer"), filepath.Join(f.work, "a-newer")))
	report, ran = f.drill(t, "--data-dir", d.dataDir, "--restore-command", "false") // an archive without WAL
	require.Zero(t, ran.code, ran)
	require.Equal(t, []string{"sound", "tar"}, []string{report.Verdict, report.Backup.Format})
	require.Equal(t, 1, report.Lacks.Erasures)
	require.NoError(t, os.Rename(filepath.Join(f.work, "a-newer"), filepath.Join(f.backups, "a-newer")))
	f.requireNothingLeft(t)

	require.Equal(t, before, contents(t, production...))
	held := command(t, nil, "verify", "--data-dir", d.dataDir, "--head", heads)
	require.Zero(t, held.code, held)

	t.Run("end was cut off before the backup", func(t *testing.T) {
		kept := t.TempDir()
		require.NoError(t, copyFolder(filepath.Join(d.Exports, "checkpoints"), kept))
		for file := range contents(t, kept) {
			require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().AddDate(0, 0, -1)))
		}
		report, ran := f.drill(t, "--data-dir", d.dataDir, "--checkpoints", kept, "--key", filepath.Join(d.Exports, "verifier-keys"))
		require.Equal(t, 1, ran.code, ran)
		require.Equal(t, "damaged", report.Verdict)
		require.Contains(t, ran.stdout, "global_log_cut")
	})

	t.Run("too old", func(t *testing.T) {
		report, ran := f.drill(t, "--data-dir", d.dataDir, "--max-age", "1ms")
		require.Equal(t, 1, ran.code, ran)
		require.Equal(t, "outdated", report.Verdict)
	})

	t.Run("addresses of databases are not used", func(t *testing.T) {
		const away = "postgres://backbone_app@127.0.0.1:1/backbone"
		ran := command(t, append(d.keys(), "BACKBONE_DATABASE_DSN="+away, "BACKBONE_DATABASE_ERASER_DSN="+away, "BACKBONE_DATABASE_LISTEN_DSN="+away, "BACKBONE_KEYSTORE_ERASER_DSN="+away),
			"drill", "restore", "--backups", f.backups, "--work", f.work)
		require.Zero(t, ran.code, ran)
		require.Contains(t, ran.stdout, "1 receipt replayed in the copy")
		require.NotContains(t, ran.stdout, "Not checked")
		require.Contains(t, ran.stdout, "The backup is sound")
	})

	t.Run("key service does not answer", func(t *testing.T) {
		ran := command(t, append(d.keys(), "BACKBONE_DATABASE_DSN="+d.DSN, "BACKBONE_KMS_ENDPOINT=http://127.0.0.1:1", "BACKBONE_KMS_TRIES=1"), "drill", "restore", "--backups", f.backups, "--work", f.work)
		require.Equal(t, 2, ran.code, ran)
		require.Contains(t, ran.stdout, "Not checked: keys and receipts of erasures: ")
		require.Contains(t, ran.stdout, "Incomplete: ")
		f.requireNothingLeft(t)
	})

	t.Run("damaged", func(t *testing.T) {
		damaged := newDrillFixture(t)
		archive := filepath.Join(damaged.backups, "b", "base.tar.gz")
		require.NoError(t, os.Mkdir(filepath.Join(damaged.backups, "b"), 0o700))
		require.NoError(t, copyFolder(filepath.Join(f.backups, "z-older"), filepath.Join(damaged.backups, "b")))
		require.NoError(t, os.Truncate(archive, testkit.Must(os.Stat(archive)).Size()/2))
		_, ran := damaged.drill(t, "--data-dir", d.dataDir)
		require.Equal(t, 1, ran.code, ran)
		require.Contains(t, ran.stderr, "drill.backup_damaged")
		damaged.requireNothingLeft(t)

		plain := newDrillFixture(t)
		require.NoError(t, copyFolder(f.backups, plain.backups))
		require.NoError(t, os.WriteFile(filepath.Join(plain.backups, "a-newer", "global", "pg_control"), []byte("x"), 0o600))
		_, ran = plain.drill(t, "--data-dir", d.dataDir)
		require.Equal(t, 1, ran.code, ran)
		require.Contains(t, ran.stderr, "drill.backup_damaged")
		plain.requireNothingLeft(t)
	})

	t.Run("tampered", func(t *testing.T) {
		tampered := newDrillFixture(t)
		super, err := pgx.Connect(t.Context(), superuser(t, d.dataDir))
		require.NoError(t, err)
		_, err = super.Exec(t.Context(), "SET session_replication_role = replica")
		require.NoError(t, err)
		changed, err := super.Exec(t.Context(), `UPDATE backbone.event_payloads p SET payload = replace(p.payload::text, '"grade":0', '"grade":9')::json
			FROM backbone.events e WHERE e.type = $1 AND e.stream_id = 'E-700' AND p.partition_id = e.partition_id AND p.sequence = e.sequence AND p.payload::text LIKE '%"grade":0%'`, personType)
		require.NoError(t, err)
		require.Positive(t, changed.RowsAffected())
		require.NoError(t, super.Close(t.Context()))
		tampered.backUp(t, d.dataDir, "b", "--format", "tar")
		report, ran := tampered.drill(t, "--data-dir", d.dataDir)
		require.Equal(t, 1, ran.code, ran)
		require.Equal(t, "damaged", report.Verdict)
		require.Contains(t, ran.stdout, "payload_mismatch")
		tampered.requireNothingLeft(t)
	})
}

// TestRestoreDrillInterrupted interrupts and kills drills while PostgreSQL replays WAL.
func TestRestoreDrillInterrupted(t *testing.T) {
	t.Parallel()
	f := newDrillFixture(t)
	d := startOn(t, copyOfBooks(t), recoveryStart)
	f.backUp(t, d.dataDir, "b")

	// stuck starts a drill that waits for WAL, and returns the process of its PostgreSQL. isRead reports whether the
	// command that fetches WAL still runs.
	stuck := func(name string) (p *process, server int, isRead func() bool) {
		fifo := filepath.Join(filepath.Dir(f.work), name)
		require.NoError(t, syscall.Mkfifo(fifo, 0o600))
		require.NoError(t, os.Chmod(fifo, 0o644)) //nolint:gosec // PostgreSQL may run as another user
		isRead = func() bool {
			writer, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0) // fails without a reader
			if err == nil {
				t.Cleanup(func() { _ = writer.Close() }) // or the command would end
			}
			return err == nil
		}
		p, err := launch(program(t), "", nil, "drill", "restore", "--backups", f.backups, "--work", f.work, "--restore-command", "cat "+fifo)
		require.NoError(t, err)
		testkit.Eventually(t, endTime, isRead, "PostgreSQL asks for WAL")
		folders := testkit.Must(os.ReadDir(f.work))
		require.Len(t, folders, 1)
		server, err = postmaster(filepath.Join(f.work, folders[0].Name()))
		require.NoError(t, err)
		return p, server, isRead
	}
	interrupted, server, isRead := stuck("interrupted")
	code, err := interrupted.interrupt()
	require.NoError(t, err)
	require.Equal(t, 2, code, interrupted.stderr)
	require.True(t, processGone(server))
	testkit.Eventually(t, endTime, func() bool { return !isRead() }, "the command has ended")
	f.requireNothingLeft(t)

	killed, server, isRead := stuck("killed")
	require.NoError(t, killed.signal(syscall.SIGKILL))
	<-killed.ended
	require.False(t, processGone(server))
	report, ran := f.drill(t)
	require.Zero(t, ran.code, ran)
	require.Contains(t, ran.stderr, "which a killed drill left")
	require.Equal(t, "sound", report.Verdict)
	require.Len(t, report.NotChecked, 2, "without a configuration there are neither checkpoints nor receipts")
	require.True(t, processGone(server))
	testkit.Eventually(t, endTime, func() bool { return !isRead() }, "the command has ended")
	f.requireNothingLeft(t)
}
