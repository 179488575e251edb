package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/basebackup"
	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/exportdir"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

func drillCommand(modules []plugin.Module) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Rehearse an emergency, beside the running system",
	}
	cmd.AddCommand(drillRestoreCommand(modules))
	return cmd
}

func drillRestoreCommand(modules []plugin.Module) *cobra.Command {
	o := drillOptions{Modules: modules}
	cmd := databaseCommand(&cobra.Command{
		Use:   "restore",
		Short: "Restore the newest backup beside the database, and prove it",
		Long: "restore copies the newest base backup of a folder into a work folder, starts a private PostgreSQL\n" +
			"on the copy, verifies it against the checkpoints of the export folder, restores the keys and\n" +
			"replays the receipts of erasures there, and reports how long it took and which events are not\n" +
			"in the backup. Then it removes the copy. It only reads backups, exports and keys, and never\n" +
			"connects to the databases of the configuration.\n\n" +
			"DIR has a folder for each backup of pg_basebackup (plain, or tar with --gzip or without), or is\n" +
			"a data directory that another tool restored, such as pgBackRest. Who runs it can read all of it.\n\n" +
			"Exit code 0: sound. 1: the backup is damaged or too old, or its log was tampered with. 2: it\n" +
			"could not finish, or a service did not answer.",
		Example: "  backbone drill restore --backups /backups --config /etc/backbone.yaml --max-age 48h\n" +
			"  backbone drill restore --backups /backups --restore-command 'cp /wal/%f %p'    the archived WAL too\n" +
			"  backbone drill restore --backups /backups --head heads-2026-03.json --json\n" +
			"  backbone drill restore --backups /var/tmp/restored --work /var/tmp --keep",
	}, &o.databaseOptions, func(ctx context.Context) error { return drillRestore(ctx, o) })
	f := cmd.Flags()
	f.StringVar(&o.Backups, "backups", "", "folder with base backups, or a restored data directory (required)")
	f.StringVar(&o.RestoreCommand, "restore-command", "", "PostgreSQL's restore_command, to fetch archived WAL: %f is the name of the file, %p where it goes (default: the WAL in the backup)")
	f.StringVar(&o.Work, "work", "", "folder in which the folder for the copy is made (default: that of temporary files)")
	f.BoolVar(&o.Keep, "keep", false, "keep the copy, to look at it")
	f.DurationVar(&o.MaxAge, "max-age", 0, "how old the newest backup may be, such as 48h; an older one is found (default: any age)")
	f.StringVar(&o.Postgres, "postgres", "", "folder of PostgreSQL's programs (default: found on PATH and in /usr/lib/postgresql)")
	f.StringVar(&o.Head, "head", "", "file of heads that were exported earlier, which the log must contain")
	f.StringArrayVar(&o.Checkpoints, "checkpoints", nil, "signed checkpoint, an export folder or a folder of checkpoints, which the log must continue; may be repeated (default: those of erasure.export_directory)")
	f.StringArrayVar(&o.Keys, "key", nil, "verifier key of the log, or a file or folder with some (default: those of erasure.export_directory)")
	f.StringVar(&o.Policy, "witness-policy", "", witnessPolicyHelp)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if coded := new(exitError); err == nil || errors.As(err, coded) {
			return err
		}
		return exitError{2, err}
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{2, err} })
	return cmd
}

// drillOptions are the flags of `backbone drill restore`.
type drillOptions struct {
	databaseOptions
	Modules        []plugin.Module
	Backups        string
	RestoreCommand string
	Work           string // "": the folder of temporary files
	Keep           bool
	MaxAge         time.Duration // 0: any
	Postgres       string
	Head           string
	Checkpoints    []string
	Keys           []string
	Policy         string
}

// restoreDrill is a drill in progress. Its configuration has no address of production's databases.
type restoreDrill struct {
	drillOptions
	database       string // of the configuration
	hasForeignKeys bool   // the keys are in another database than the backup
	backup         basebackup.Backup
	folder         *drillFolder
	cluster        *embeddedpg.Cluster
	report         drillReport
}

// drillRestore restores the newest backup beside the database and reports what it finds.
//
//	drill.backup_missing       NotFound
//	drill.backup_damaged       Invalid
//	drill.backup_linked, drill.backup_unreadable, drill.recovery_failed, drill.database_ambiguous,
//	drill.database_missing, drill.no_space, drill.work_unusable  FailedPrecondition
func drillRestore(ctx context.Context, o drillOptions) (err error) {
	if o.Backups == "" {
		return fmt.Errorf("name the folder of the backups with --backups")
	}
	if o.Work, err = filepath.Abs(cmp.Or(o.Work, os.TempDir())); err != nil {
		return err
	}
	d := &restoreDrill{drillOptions: o, hasForeignKeys: o.Config.KeyStore.DSN != "", report: drillReport{At: time.Now().UTC()}}
	if configured, err := pgx.ParseConfig(o.Config.Database.DSN.Reveal()); err == nil {
		d.database = configured.Database
	}
	d.Config.Database, d.Config.KeyStore = configs.Default().Database, configs.Default().KeyStore
	if d.backup, d.report.Skipped, err = basebackup.Newest(o.Backups); err != nil {
		return drillFailure(ctx, err)
	}
	if inside, err := filepath.Rel(d.backup.Path, d.Work); err == nil && filepath.IsLocal(inside) {
		return fault.New(fault.Invalid, "drill.work_unusable", "%s is in the folder of the backup, which the drill only reads; name another place with --work", d.Work)
	}
	if err := removeKilledDrills(ctx, o.Work, o.err); err != nil {
		return err
	}
	if d.folder, err = newDrillFolder(o.Work, d.backup.Bytes, o.Keep); err != nil {
		return err
	}
	err = d.run(ctx)
	if err := errors.Join(drillFailure(ctx, err), d.end(ctx)); err != nil {
		return err
	}
	if err := d.conclude(); err != nil {
		return err
	}
	switch d.report.Verdict {
	case drillDamaged, drillOutdated:
		return exitError{1, nil}
	case drillIncomplete:
		return exitError{2, nil}
	}
	return nil
}

// drillFailure gives an error that ended a drill its exit code: 1 if it is about the backup.
func drillFailure(ctx context.Context, err error) error {
	switch code := fault.CodeOf(err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("the drill was interrupted")
	case code == "drill.backup_damaged" || code == "drill.recovery_failed":
		return exitError{1, err}
	}
	return err
}

// end stops the server and removes the copy, or says how to look at it.
func (d *restoreDrill) end(ctx context.Context) (err error) {
	if d.cluster != nil {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = d.cluster.Stop(stopping)
	}
	err = errors.Join(err, d.folder.end())
	if d.Keep {
		d.report.Kept = d.folder.path
		data := d.folder.at("pg", "data")
		fmt.Fprintf(d.err, "The copy is kept. It has all that the database has; remove %s when you have looked at it, as the user who owns it:\n"+
			"  pg_ctl -D %s start\n  psql -h %s -U postgres      # postgres.json in the folder has the password\n", d.folder.path, data, data)
	}
	return err
}

// run works through the steps of docs/operate/backup.md on the copy.
func (d *restoreDrill) run(ctx context.Context) error {
	for _, step := range []struct {
		title string
		work  func(context.Context) error
	}{
		{"copy", d.copy},
		{"compare files", d.compareFiles},
		{"replay WAL", d.start},
		{"migrate", d.migrate},
		{"verify", d.verify},
		{"replay receipts", d.replayReceipts},
	} {
		fmt.Fprintln(d.err, step.title)
		started := time.Now()
		if err := step.work(ctx); err != nil {
			return err
		}
		d.report.Steps = append(d.report.Steps, drillStep{step.title, time.Since(started).Milliseconds()})
	}
	return nil
}

func (d *restoreDrill) copy(ctx context.Context) error {
	total := max(int(d.backup.Bytes>>20), 1)
	show := newProgress(d.err, d.terminal)
	report := func(done int) {
		if d.terminal {
			show.report("MB", done, total)
		}
	}
	err := d.backup.CopyTo(ctx, d.folder.at("pg", "data"), func(done int64) { report(min(int(done>>20), total-1)) })
	if err == nil {
		report(total)
	}
	return err
}

func (d *restoreDrill) compareFiles(ctx context.Context) error {
	different, isVerified, err := embeddedpg.VerifyFiles(ctx, d.Postgres, d.folder.at("pg", "data"))
	if err != nil {
		return err
	}
	if different != "" {
		return fault.New(fault.Invalid, "drill.backup_damaged", "the files of the backup are not those of its manifest: %s. Do not rely on it: take another backup now, then find out what happened to this one", different)
	}
	if !isVerified {
		d.notChecked("the files of the backup, since it has no manifest, or PostgreSQL's programs no pg_verifybackup")
	}
	d.report.Backup = drilledBackup{Folder: d.backup.Path, Format: d.backup.Format(), Started: d.backup.Started, Bytes: d.backup.Bytes, IsVerified: isVerified}
	return nil
}

func (d *restoreDrill) start(ctx context.Context) (err error) {
	d.cluster, err = embeddedpg.Start(ctx, embeddedpg.Config{BinDir: d.Postgres, DataDir: d.folder.path, Restored: true, RestoreCommand: d.RestoreCommand})
	return err
}

// migrate finds the database of the log in the copy, brings it to the schema of this program, and configures it.
func (d *restoreDrill) migrate(ctx context.Context) error {
	name, err := d.findDatabase(ctx)
	if err != nil {
		return err
	}
	owner := d.cluster.SuperuserDSN(name)
	conn, err := pgx.Connect(ctx, owner)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "DELETE FROM pg_catalog.pg_event_trigger"); err != nil { // they would run with each migration
		return err
	}
	if err := wire.Migrate(ctx, owner, nil, d.Modules...); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&d.report.Backup.PostgreSQL); err != nil {
		return err
	}
	password := newPassword()
	for _, role := range []string{"backbone_app", "backbone_eraser"} {
		if _, err := conn.Exec(ctx, "ALTER ROLE "+role+" LOGIN CONNECTION LIMIT -1 VALID UNTIL 'infinity' PASSWORD '"+password+"'"); err != nil {
			return err
		}
	}
	d.Config.Database.DSN = configs.DSN(d.cluster.DSN("backbone_app", password, name))
	d.Config.Database.EraserDSN = configs.DSN(d.cluster.DSN("backbone_eraser", password, name))
	return nil
}

// findDatabase finds the database of the log: the one of the configuration, or the only one that has a log.
func (d *restoreDrill) findDatabase(ctx context.Context) (string, error) {
	names, err := selectColumn[string](ctx, d.cluster.SuperuserDSN("postgres"), "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname")
	if err != nil {
		return "", err
	}
	var logs []string
	for _, name := range names {
		found, err := selectColumn[bool](ctx, d.cluster.SuperuserDSN(name), "SELECT to_regclass('backbone.installation') IS NOT NULL")
		if err != nil {
			return "", err
		}
		if slices.Contains(found, true) {
			logs = append(logs, name)
		}
	}
	switch {
	case slices.Contains(logs, d.database):
		return d.database, nil
	case len(logs) == 0:
		return "", fault.New(fault.FailedPrecondition, "drill.database_missing", "no database of the backup has a log; check that --backups is of the right server")
	case len(logs) == 1:
		return logs[0], nil
	}
	return "", fault.New(fault.FailedPrecondition, "drill.database_ambiguous", "the backup has several databases with a log (%s); name the one to check in database.dsn", strings.Join(logs, ", "))
}

// selectColumn reads a column.
func selectColumn[T any](ctx context.Context, dsn, sql string) ([]T, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

func (d *restoreDrill) notChecked(format string, args ...any) {
	d.report.NotChecked = append(d.report.NotChecked, fmt.Sprintf(format, args...))
}

// verify verifies the log of the copy. The receipts of erasures are compared later, when they were replayed.
func (d *restoreDrill) verify(ctx context.Context) error {
	o := verifyOptions{Config: d.Config, DSN: d.Config.Database.DSN.Reveal(), Modules: d.Modules, Head: d.Head, Checkpoints: d.Checkpoints, Keys: d.Keys, Policy: d.Policy, output: d.output}
	if exports := d.Config.Erasure.ExportDirectory; exports != "" && len(o.Checkpoints) == 0 && isFolder(filepath.Join(exports, globallog.CheckpointFolder)) {
		o.Checkpoints = []string{exports}
		if len(o.Keys) == 0 && o.Policy == "" {
			o.Keys = []string{filepath.Join(exports, "verifier-keys")}
		}
	}
	if len(o.Checkpoints) == 0 {
		d.notChecked("the log against checkpoints: there are none in erasure.export_directory, and --checkpoints names none")
	}
	o.Config.Erasure.ExportDirectory = ""
	if d.hasForeignKeys {
		o.Config.Database.EraserDSN = ""
	}
	references, err := o.references()
	if err != nil {
		return err
	}
	if err := d.separate(ctx, &references); err != nil {
		return err
	}
	v, err := references.verify(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.notFinished("the verification could not finish: %s", describe(err))
	}
	d.report.verdict = v
	return nil
}

func (d *restoreDrill) notFinished(format string, args ...any) {
	d.notChecked(format, args...)
	d.report.isIncomplete = true
}

// clockTolerance is how far the clocks of the database and of the export folder may be apart.
const clockTolerance = 5 * time.Minute

// separate takes the references out that are beyond the end of the log because they are younger than the backup, and
// counts what the backup lacks. One from before the backup that is beyond its end stays: the end was cut off before.
func (d *restoreDrill) separate(ctx context.Context, r *references) error {
	store, err := wire.OpenReader(ctx, d.Config.Database.DSN.Reveal(), configs.Archive{})
	if err != nil {
		return err
	}
	defer store.Close()
	heads, err := store.Events.PartitionHeads(ctx)
	if err != nil {
		return err
	}
	size, err := store.GlobalLog.GlobalSize(ctx)
	if err != nil {
		return err
	}
	for _, head := range heads {
		d.report.Events += uint64(head.Sequence)
		if head.RecordedAt.After(d.report.NewestEvent) {
			d.report.NewestEvent = head.RecordedAt
		}
	}
	isYounger := func(t time.Time) bool { return t.After(d.backup.Started.Add(-clockTolerance)) }
	var kept []domain.Checkpoint
	for i, c := range r.anchors.Kept {
		if c.Size > size && isYounger(r.anchors.written[i]) {
			d.report.Lacks.SignedEvents = max(d.report.Lacks.SignedEvents, c.Size-size)
		} else {
			kept = append(kept, c)
		}
	}
	if len(kept) == 0 && len(r.anchors.Kept) > 0 {
		d.notChecked("the log against checkpoints: all are younger than the backup")
	}
	r.anchors.Kept = kept
	if r.heads != nil && isYounger(r.heads.Time) {
		d.report.Lacks.HeadEvents = withoutYounger(r.heads, heads)
	}
	return nil
}

// withoutYounger takes the heads out that are beyond the ends of logs, and returns by how many events.
func withoutYounger(h *verify.Heads, ends map[event.PartitionID]ports.Head) (events uint64) {
	h.Partitions = slices.DeleteFunc(h.Partitions, func(head verify.Head) bool {
		end, exists := ends[head.Partition]
		isYounger := !exists || head.Sequence > end.Sequence
		if isYounger {
			events += uint64(head.Sequence - end.Sequence)
		}
		return isYounger
	})
	return events
}

// replayReceipts restores the keys of the newest export and replays the receipts, in the copy, from a copy of the export
// folder. The key service only opens and describes keys.
func (d *restoreDrill) replayReceipts(ctx context.Context) error {
	reason := ""
	switch c := d.Config; {
	case c.Erasure.ExportDirectory == "":
		reason = "erasure.export_directory is not configured"
	case d.hasForeignKeys:
		reason = "the key store is a database of its own, which this backup has not"
	case c.KMS.LocalDirectory != "":
		reason = "the keys are in the process of the server (kms.local_directory)"
	case !c.KMS.Configured():
		reason = "no key service is configured"
	}
	if reason != "" {
		d.notChecked("keys and receipts of erasures: %s", reason)
		return nil
	}
	if err := copyExports(ctx, d.Config.Erasure.ExportDirectory, d.folder.at("exports")); err != nil {
		return d.receiptsFailed(ctx, err)
	}
	o := keysOptions{databaseOptions: d.databaseOptions}
	o.Config.Erasure.ExportDirectory = d.folder.at("exports")
	return d.receiptsFailed(ctx, withKeys(ctx, o, func(k *wire.Keyring) error { return d.repeatErasures(ctx, k, o) }))
}

// receiptsFailed notes why receipts were not replayed: a failure of a service is no finding.
func (d *restoreDrill) receiptsFailed(ctx context.Context, err error) error {
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case fault.KindOf(err) == fault.Unavailable:
		d.notFinished("keys and receipts of erasures: %s", describe(err))
	default:
		d.report.Findings = append(d.report.Findings, "keys and receipts of erasures: "+describe(err))
	}
	return nil
}

func (d *restoreDrill) repeatErasures(ctx context.Context, k *wire.Keyring, o keysOptions) error {
	restored, err := k.Rotation.Restore(ctx, 0, o.progress())
	if err != nil && fault.CodeOf(err) != "keys.export_missing" { // before the first rotation there is none
		return err
	}
	d.report.Keys = restored.Keys
	known := 0
	if err := ports.EachReceipt(ctx, k.Erasures, 1, func(ports.ErasureReceipt) error { known++; return nil }); err != nil {
		return err
	}
	replayed, err := o.replayReceipts(ctx, k)
	if err != nil {
		return err
	}
	d.report.Receipts, d.report.Lacks.Erasures = replayed.Receipts, max(replayed.Receipts-known, 0)
	audit, err := wire.OpenKeyStoreAudit(ctx, o.Config, false)
	if err != nil {
		return err
	}
	finding, _, err := audit.CompareErased(ctx, "")
	if err = errors.Join(err, audit.Close()); err != nil {
		return err
	}
	d.report.verdict.erasures = &erasureVerdict{finding}
	d.report.verdict.sound = d.report.verdict.sound && finding == ""
	return nil
}

// copyExports copies the documents of an export folder, but not checkpoints, which nothing here writes. It opens the
// folder for reading only.
func copyExports(ctx context.Context, from, to string) error {
	source, err := exportdir.At(from)
	if err != nil {
		return err
	}
	target, err := exportdir.Open(to)
	if err != nil {
		return err
	}
	names, err := source.List(ctx, "")
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, globallog.CheckpointFolder) {
			continue
		}
		content, err := source.Get(ctx, name)
		if err != nil {
			return err
		}
		if err := target.PutIfAbsent(ctx, name, content); err != nil {
			return err
		}
	}
	return nil
}
