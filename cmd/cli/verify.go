package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
)

func verifyCommand(modules []plugin.Module) *cobra.Command {
	o := verifyOptions{Modules: modules}
	var dsn, dataDir, archiveDir, config, server, token string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that history was not rewritten",
		Long: "verify computes every payload hash and the whole chain of checksums again, and lists\n" +
			"authorised redactions and erasures. With a head that was exported earlier it also finds a\n" +
			"tail that was cut off and a chain that was computed again. With --dump it needs neither\n" +
			"database nor network.\n" +
			"With the configuration of a server it also compares the receipts of erasures, which are\n" +
			"outside the database, with the key store: no key that they name may be there again. The keys\n" +
			"of persons must be there; --open-keys opens each and compares it with what it sealed.\n" +
			"With --checkpoints it finds every change of what was signed, also by one who computes all again\n" +
			"and is superuser of the database: checkpoints of the export folder, or of an auditor.\n" +
			"With --server the server verifies your tenant by itself, for an auditor who has a token and no\n" +
			"access to the database. The result is only as good as that server; Ctrl-C cancels the run.\n" +
			"BACKBONE_SERVER alone does not select this: name the server.\n" +
			"Exit code 0: sound. 1: tampered, and where. 2: it could not finish, since something that it\n" +
			"was asked to read is missing or unreadable.",
		Example: "  backbone verify                             the \"backbone dev\" of ./dev-data\n" +
			"  backbone verify --legal-entity DEMF --json\n" +
			"  backbone verify --dsn postgres://backbone_reader@db/backbone\n" +
			"  backbone verify --config /etc/backbone.yaml\n" +
			"  backbone verify --export-head heads-2026-03.json      write the heads of a sound log\n" +
			"  backbone verify --head heads-2026-03.json             hold the log against them later\n" +
			"  backbone verify --dump DEMF.jsonl --head heads-2026-03.json\n" +
			"  backbone verify --checkpoints /mnt/exports --key ledger.example.org/1+2a5b…+AZ…\n" +
			"  backbone verify --server https://backbone.example.org",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return exitError{2, err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if server != "" {
				if dsn != "" || config != "" || o.Tenant != "" || len(o.Dumps) > 0 || len(o.Checkpoints) > 0 {
					return exitError{2, fmt.Errorf("a server verifies the tenant of the token: leave out --dsn, --config, --tenant, --dump and --checkpoints")}
				}
				s, err := connect(cmd, server, token, "client.token_missing", o.json)
				if err != nil {
					return exitError{2, err}
				}
				return verifyOnServer(cmd.Context(), &s, o)
			}
			if len(o.Checkpoints) > 0 && (o.Tenant != "" || len(o.LegalEntities) > 0 || len(o.Dumps) > 0) {
				return exitError{2, fmt.Errorf("checkpoints are of the events of all legal entities: leave out --tenant, --legal-entity and --dump")}
			}
			if len(o.Dumps) == 0 {
				if o.Config, err = readerConfig(config, dsn, dataDir); err != nil {
					return exitError{2, err}
				}
				o.Config.Archive.Directory = cmp.Or(archiveDir, o.Config.Archive.Directory)
				o.DSN = o.Config.Database.DSN.Reveal()
			} else if dsn != "" || o.Tenant != "" || len(o.LegalEntities) > 0 {
				return exitError{2, fmt.Errorf("an export file is verified as a whole: leave out --dsn, --tenant and --legal-entity")}
			}
			o.output = newOutput(cmd, o.json)
			sound, err := verifyLog(cmd.Context(), o)
			if fault.KindOf(err) == fault.Unavailable {
				err = fmt.Errorf("%s; a `backbone dev` must be running to be verified", describe(err))
			}
			switch {
			case !sound: // even if an error ended the run: tampering that was found stays found
				return exitError{1, err}
			case err != nil:
				return exitError{2, err}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{2, err} })
	f := cmd.Flags()
	readerFlags(cmd, &dsn, &dataDir)
	f.StringVar(&config, "config", "", configHelp)
	f.StringVar(&archiveDir, "archive", "", archiveHelp)
	f.StringVar(&o.Tenant, "tenant", "", "only this tenant")
	f.StringSliceVar(&o.LegalEntities, "legal-entity", nil, "only these legal entities")
	f.StringArrayVar(&o.Dumps, "dump", nil, "verify this file of \"backbone export-log\" instead of a database; may be repeated")
	f.BoolVar(&o.OpenKeys, "open-keys", false, "open every key of a person with the key service, and compare it with what it sealed")
	f.StringVar(&o.Head, "head", "", "file of heads that were exported earlier, which the log must contain")
	f.StringVar(&o.ExportHead, "export-head", "", "write the heads to this file if the log is sound")
	f.StringArrayVar(&o.Checkpoints, "checkpoints", nil, "signed checkpoint of the global log, an export folder or a folder of checkpoints, which the log must continue; may be repeated")
	f.StringArrayVar(&o.Keys, "key", nil, "verifier key of the log, or a file or folder with some: the checkpoints in the database must be signed with it, and those of --checkpoints")
	f.StringVar(&o.Policy, "witness-policy", "", witnessPolicyHelp+"; with --checkpoints")
	f.BoolVar(&o.json, "json", false, "print the verdict as JSON")
	f.StringVar(&server, "server", "", "let this server verify your tenant, instead of reading a database")
	tokenFlag(cmd, &token)
	return cmd
}

func exportLogCommand() *cobra.Command {
	var o exportLogOptions
	var dsn, dataDir, archiveDir string
	cmd := &cobra.Command{
		Use:   "export-log FILE",
		Short: "Write a legal entity's log to a file that can be verified offline",
		Long: "export-log writes the events of a legal entity, up to its head, as JSON Lines with all that\n" +
			"\"backbone verify --dump\" needs. Sealed personal values stay sealed. FILE - is standard output.\n" +
			"The administrative log of a tenant is exported as the legal entity _ADMIN.\n\n" +
			"It reads the database. To get the events of a query from a server, as a person may read them,\n" +
			"use \"backbone export\".",
		Example: "  backbone export-log --legal-entity DEMF DEMF.jsonl\n" +
			"  backbone export-log --legal-entity _ADMIN --tenant acme administrative.jsonl\n" +
			"  backbone export-log --legal-entity DEMF - | gzip > DEMF.jsonl.gz",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.DSN, o.Archive, err = readerAddresses(dsn, dataDir, archiveDir); err != nil {
				return err
			}
			o.File, o.output = args[0], newOutput(cmd, false)
			return exportLog(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	readerFlags(cmd, &dsn, &dataDir)
	f.StringVar(&archiveDir, "archive", "", archiveHelp)
	f.StringVar(&o.Tenant, "tenant", "", "id of the tenant, where several have the legal entity")
	f.StringVar(&o.LegalEntity, "legal-entity", "", "code of the legal entity, or _ADMIN (required)")
	required(cmd, "legal-entity")
	return cmd
}

// verifyOptions are the flags of `backbone verify`.
type verifyOptions struct {
	DSN           string
	Config        configs.Config // of the export folder and the key store; they are not compared if it does not name them
	Dumps         []string       // export files to verify instead of a database
	Tenant        string         // "" is all
	LegalEntities []string
	Modules       []plugin.Module // of this program, for its policies
	OpenKeys      bool            // open every key of a person
	Head          string          // file of heads exported earlier; "": none
	ExportHead    string          // file to write the heads of a sound log to; "": none
	Checkpoints   []string        // files and folders of checkpoints
	Policy        string          // file of the policy of witnesses; "": none
	Keys          []string        // verifier keys of the log, or files and folders with some
	output
}

// verifyLog checks the log and reports whether it is sound. With an error, sound false means
// that tampering was found before the error ended the run; sound true means no verdict.
func verifyLog(ctx context.Context, o verifyOptions) (sound bool, err error) {
	references, err := o.references()
	if err != nil {
		return true, err
	}
	v, err := references.verify(ctx, o)
	if v.sound && err == nil && o.ExportHead != "" {
		if err = writeHeads(o.ExportHead, verify.HeadsOf(v.logName, v.started, v.reports, v.registries)); err == nil {
			v.headFile = o.ExportHead
		}
	}
	v.finished = err == nil
	if o.json {
		if writeErr := printJSON(o.out, v.text()); writeErr != nil {
			return v.sound, writeErr
		}
		return v.sound, err
	}
	if writeErr := printPage(o.out, func(p *page) { p.verdict(&v) }); v.finished {
		err = writeErr
	}
	return v.sound, err
}

// references are what was kept outside of the database and a log is compared with.
type references struct {
	heads   *verify.Heads // nil: none
	anchors anchors
}

// references reads them from the files that the flags name.
func (o *verifyOptions) references() (r references, err error) {
	if o.Head != "" {
		text, err := os.ReadFile(o.Head)
		if err != nil {
			return r, fault.New(fault.NotFound, "verify.heads_missing", "the file of exported heads cannot be read; check --head").WithCause(err)
		}
		heads, err := verify.ParseHeads(text)
		if err != nil {
			return r, err
		}
		r.heads = &heads
	}
	r.anchors, err = readAnchors(o.Checkpoints, o.Keys, o.Policy)
	return r, err
}

// verify checks the log against the references. An error means that it could not finish; the verdict has the findings
// until then.
func (r references) verify(ctx context.Context, o verifyOptions) (v verdict, err error) {
	var options []verify.Option
	if r.heads != nil {
		options = append(options, verify.Against(*r.heads))
	}
	show := newProgress(o.err, o.terminal)
	v = verdict{anchors: r.anchors.Anchors, started: time.Now()}
	if len(o.Dumps) > 0 {
		err = v.dumps(ctx, o, show, options)
	} else {
		err = v.database(ctx, o, show, options)
	}
	if err == nil && len(v.reports) == 0 {
		err = nothingToVerify(o.Tenant)
	}
	v.elapsed, v.finished = time.Since(v.started), err == nil
	v.sound = !slices.ContainsFunc(v.registries, func(r verify.RegistryReport) bool { return !r.Sound() })
	for _, r := range v.reports {
		v.sound = v.sound && r.Sound()
	}
	v.sound = v.sound && (v.globalLog == nil || v.globalLog.Sound())
	v.sound = v.sound && (v.erasures == nil || v.erasures.Finding == "")
	return v, err
}

// verdict collects the findings of a run.
type verdict struct {
	logName    string
	reports    []verify.EntityReport
	registries []verify.RegistryReport // nil: not verified, since there is no database
	globalLog  *verify.GlobalLogReport // nil: not verified, since it is of all tenants
	erasures   *erasureVerdict         // nil: not compared
	anchors    verify.Anchors          // of the global log
	headFile   string                  // written
	started    time.Time
	elapsed    time.Duration
	sound      bool // no finding
	finished   bool // false: an error ended the run
}

// erasureVerdict is the result of comparing receipts and keys.
type erasureVerdict struct {
	Finding string `json:"finding,omitempty"` // "": sound
}

// verdictText is the verdict as JSON.
type verdictText struct {
	Sound         bool                    `json:"sound"`
	Finished      bool                    `json:"finished"`
	LegalEntities []verify.EntityReport   `json:"legal_entities"`
	Registries    []verify.RegistryReport `json:"event_types,omitempty"`
	GlobalLog     *verify.GlobalLogReport `json:"global_log,omitempty"`
	Erasures      *erasureVerdict         `json:"erasures,omitempty"`
}

func (v *verdict) text() verdictText {
	return verdictText{v.sound && v.finished, v.finished, v.reports, v.registries, v.globalLog, v.erasures}
}

func (v *verdict) database(ctx context.Context, o verifyOptions, show *progress, options []verify.Option) error {
	store, err := wire.OpenReader(ctx, o.DSN, o.Config.Archive)
	if err != nil {
		return err
	}
	defer store.Close()
	var onProgress verify.Progress
	if o.terminal {
		onProgress = func(entity string, done, total uint64) {
			show.report(cmp.Or(entity, "global log"), int(done), int(total))
		}
	}
	installation, err := store.Directory.Installation(ctx)
	if err != nil {
		return err
	}
	v.logName = installation.LogName
	if v.registries, err = verify.Registries(ctx, store.Registry, o.Tenant, options...); err != nil {
		return err
	}
	options = append(options, verify.Settle(wire.SettleSeconds))
	if digest, err := wire.PolicyDigest(o.Modules); err == nil { // the start of a server reports modules that do not fit together
		options = append(options, verify.DecidesBy(digest))
	}
	keys, err := wire.OpenKeyStoreAudit(ctx, o.Config, o.OpenKeys)
	switch {
	case err != nil:
		return err
	case keys != nil:
		defer func() { _ = keys.Close() }()
		options = append(options, verify.WithKeyStore(keys))
	case o.OpenKeys:
		return fault.New(fault.Invalid, "config.eraser_missing", "keys are opened with the configuration of a server; name it with --config")
	}
	if o.OpenKeys {
		options = append(options, verify.OpenKeys(keys.DataKeys))
	}
	if v.reports, err = verify.Run(ctx, store.Chains(), o.Tenant, o.LegalEntities, onProgress, options...); err != nil {
		return err
	}
	if o.Tenant == "" && len(o.LegalEntities) == 0 {
		report, err := verify.GlobalLog(ctx, store.GlobalLog, v.anchors, onProgress)
		if v.globalLog = &report; err != nil {
			return err
		}
	}
	if keys == nil {
		return nil
	}
	finding, compared, err := keys.CompareErased(ctx, o.Tenant)
	if compared {
		v.erasures = &erasureVerdict{finding}
	}
	return err
}

func (v *verdict) dumps(ctx context.Context, o verifyOptions, show *progress, options []verify.Option) error {
	for _, path := range o.Dumps {
		file, err := os.Open(path)
		if err != nil {
			return fault.New(fault.NotFound, "verify.dump_missing", "an export file cannot be read; check --dump").WithCause(err)
		}
		in := &progressReader{ctx: ctx, in: file}
		if info, err := file.Stat(); err == nil && o.terminal && info.Size() > 0 {
			in.report = func(done int64) { show.report(filepath.Base(path), int(done), int(info.Size())) }
		}
		report, logName, err := verify.Dump(in, options...)
		_ = file.Close() // read only
		if report.Partition != 0 {
			v.reports = append(v.reports, report)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		if v.logName != "" && v.logName != logName {
			return fault.New(fault.Invalid, "verify.logs_differ", "the export files are of several logs; verify those of one log at a time")
		}
		v.logName = logName
	}
	return nil
}

// progressReader reads until the context ends and reports how far it is.
type progressReader struct {
	ctx    context.Context
	in     io.Reader
	done   int64
	report func(done int64)
}

func (r *progressReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.in.Read(b)
	r.done += int64(n)
	if r.report != nil && n > 0 {
		r.report(r.done)
	}
	return n, err
}

// writeHeads writes the heads of a sound log to a file.
func writeHeads(path string, heads verify.Heads) error {
	text, err := heads.Encode()
	if err != nil {
		return err
	}
	return replaceFile(path, text)
}

// nothingToVerify returns an error if a run verified nothing, so that it does not count as sound.
func nothingToVerify(tenant string) error {
	if tenant != "" {
		return fault.New(fault.NotFound, "verify.nothing", "tenant %s has no legal entity here, so nothing was verified; check --tenant and the database", tenant)
	}
	return fault.New(fault.NotFound, "verify.nothing", "the database holds no legal entity, so nothing was verified; check that it is the right one")
}

// maxListed bounds the redactions and the erasures that are printed per legal entity;
// --json has them all.
const maxListed = 20

// verdict writes the findings of a run.
func (p *page) verdict(v *verdict) {
	if len(v.reports) == 0 {
		p.registries(v.registries)
		return
	}
	p.logTitles()
	events := uint64(0)
	for i := range v.reports {
		r := &v.reports[i]
		p.log(r, len(r.Redactions), len(r.Erasures))
		events += r.Events
	}
	for i := range v.reports {
		p.explained(&v.reports[i])
		p.remarks(&v.reports[i], "this program")
	}
	p.registries(v.registries)
	if v.globalLog != nil {
		p.globalLog(v.globalLog)
	}
	if v.registries != nil { // a file has no keys
		p.erased(v.erasures)
	}
	if !v.finished {
		return
	}
	seconds := max(v.elapsed.Seconds(), 0.001)
	if !v.sound {
		p.tampered()
		return
	}
	p.line("Sound: %s, every payload hash and checksum computed again in %.1f s (%.0f events/s).", counted(events, "event"), seconds, float64(events)/seconds)
	p.keepHeads(v.headFile)
}

func (p *page) logTitles() {
	p.row("LEGAL ENTITY", "EVENTS", "HEAD", "HEAD CHECKSUM", "REDACTIONS", "ERASURES", "VERDICT")
}

// log writes the row of a log.
func (p *page) log(r *verify.EntityReport, redactions, erasures int) {
	p.row(r.LegalEntity, r.Events, r.Head, cmp.Or(r.Checksum, "-"), redactions, erasures, verdictOf(&r.FindingList))
}

func verdictOf(l *verify.FindingList) string {
	if n := len(l.Findings) + l.Suppressed; n > 0 {
		return fmt.Sprintf("TAMPERED (%s)", counted(n, "finding"))
	}
	return "sound"
}

// remarks writes what events do not bind yet, the policies and the damage of a log that by verified.
func (p *page) remarks(r *verify.EntityReport, by string) {
	if r.UnboundIntents > 0 {
		p.line("%s: %s from before events bound them; the number must not grow", r.LegalEntity, counted(r.UnboundIntents, "intent"))
	}
	if r.Archived > 0 {
		p.line("%s: %s read from the archive", r.LegalEntity, counted(r.Archived, "payload"))
	}
	if r.UnboundNumbers > 0 {
		p.line("%s: %s of series from before events said which they took; the number must not grow", r.LegalEntity, counted(r.UnboundNumbers, "number"))
	}
	if r.UnboundRequests > 0 {
		p.line("%s: %s from before events bound them; they expire", r.LegalEntity, counted(r.UnboundRequests, "idempotency key"))
	}
	if r.Policy != nil {
		p.policy(r.LegalEntity, r.Policy, by)
	}
	p.damage(r.LegalEntity, "sequence", &r.FindingList)
}

// damage writes the findings in a log, or in a registry, whose places are changes.
func (p *page) damage(of, place string, l *verify.FindingList) {
	for _, f := range l.Findings {
		about := ""
		if f.EventID != "" { // a missing event has no id
			about = " (event " + f.EventID + ")"
		}
		p.line("%s %s %d%s: %s: %s", of, place, f.Sequence, about, f.Kind, f.Detail)
	}
	if l.Suppressed > 0 {
		p.line("%s: %s", of, counted(l.Suppressed, "further finding"))
	}
}

func (p *page) tampered() {
	p.line("Tampered: the places are listed above. Compare with a backup and with exported heads before you change anything.")
}

// keepHeads says where the heads were written; "": nowhere.
func (p *page) keepHeads(file string) {
	if file != "" {
		p.line("The heads are in %s. Keep it where no one who can write to the database can write.", file)
	}
}

// policy writes which policies were recorded last.
func (p *page) policy(log string, recorded *verify.Policy, by string) {
	are := "are others than those of " + by + "; `backbone doctor` says what to do"
	if recorded.InForce {
		are = "are those of " + by
	}
	p.line("%s: the policies that were recorded last (%.16s…, release %s) %s", log, recorded.SHA256, recorded.Release, are)
}

// erased writes the verdict about receipts and keys; nil: they were not compared.
func (p *page) erased(v *erasureVerdict) {
	switch {
	case v == nil:
		p.line("Keys of erased persons: not compared; --config names the export folder and the key store.")
	case v.Finding == "":
		p.line("Keys of erased persons: sound, the key store has none that a receipt names.")
	default:
		p.line("Keys of erased persons: TAMPERED: %s", v.Finding)
	}
}

// registries writes the verdict about the logs of the registries of event types.
func (p *page) registries(reports []verify.RegistryReport) {
	for i := range reports {
		r, name := &reports[i], "Event types"
		if r.Tenant != "" {
			name += " of tenant " + r.Tenant
		}
		p.other(name, counted(r.Versions, "version")+", "+registryHead(r.Changes, r.Head, r.Checksum), "change", &r.FindingList)
	}
}

// other writes the verdict about what is not the log of a legal entity. Findings are at a place, such as a change.
func (p *page) other(name, about, place string, found *verify.FindingList) {
	p.line("%s: %s: %s", name, about, verdictOf(found))
	p.damage(name, place, found)
}

// globalLog writes the verdict about the global log.
func (p *page) globalLog(r *verify.GlobalLogReport) {
	p.other("Global log", fmt.Sprintf("%s, root %s", counted(r.Size, "event"), r.Root), "position", &r.FindingList)
	if r.Compared > 0 {
		p.line("  compared with %s from outside of the database; %s are signed", counted(r.Compared, "checkpoint"), counted(r.Signed, "event"))
	}
	for _, f := range r.Forks {
		p.line("  the checkpoint of %s of %s is of a log before a restore, and has events that this one has not", counted(f.Size, "event"), f.Origin)
	}
}

// registryHead is the end of a registry's log, which one without changes has not.
func registryHead(changes int, head int64, checksum string) string {
	if changes == 0 {
		return "no changes"
	}
	return fmt.Sprintf("%s, head %d %s", counted(changes, "change"), head, checksum)
}

// explained lists the authorised redactions and erasures of a legal entity.
func (p *page) explained(r *verify.EntityReport) {
	for i, x := range r.Redactions {
		if i == maxListed {
			p.line("%s: %s, see --json", r.LegalEntity, counted(len(r.Redactions)-maxListed, "further redaction"))
			break
		}
		p.line("%s sequence %d (event %s): redacted by %s, requested by %s, approved by %s", r.LegalEntity, x.Sequence, x.EventID, x.ID, x.RequestedBy, x.ApprovedBy)
	}
	for i, x := range r.Erasures {
		if i == maxListed {
			p.line("%s: %s, see --json", r.LegalEntity, counted(len(r.Erasures)-maxListed, "further erasure"))
			break
		}
		p.line("%s sequence %d: %s erased by request %s, receipt %d (SHA-256 %s)", r.LegalEntity, x.Sequence, x.Subject, x.RequestID, x.ReceiptNumber, x.ReceiptSHA256)
	}
}

// exportLogOptions are the flags of `backbone export-log`.
type exportLogOptions struct {
	DSN         string
	Archive     configs.Archive
	Tenant      string // needed where two tenants have the legal entity
	LegalEntity string
	File        string // "-": Out
	output
}

// exportLog writes the log of a legal entity to a file that can be verified offline.
func exportLog(ctx context.Context, o exportLogOptions) error {
	store, err := wire.OpenReader(ctx, o.DSN, o.Archive)
	if err != nil {
		return err
	}
	defer store.Close()
	le, err := findLegalEntity(ctx, store.Directory, o.Tenant, o.LegalEntity)
	if err != nil {
		return err
	}
	show := newProgress(o.err, o.terminal)
	var onProgress verify.Progress
	if o.terminal {
		onProgress = func(entity string, done, total uint64) { show.report(entity, int(done), int(total)) }
	}
	var summary verify.ExportSummary
	started := time.Now()
	write := func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, 1<<20)
		summary, err = verify.Export(ctx, store.Chains(), le, started, buffered, onProgress)
		if err == nil {
			err = buffered.Flush()
		}
		return err
	}
	if o.File == "-" {
		err = write(o.out)
	} else {
		err = writeFileAtomically(o.File, write)
	}
	if err != nil {
		return err
	}
	seconds := max(time.Since(started).Seconds(), 0.001)
	fmt.Fprintf(o.err, "%s: %s up to %d (%x) in %.1f s (%.0f events/s). Verify it with `backbone verify --dump`.\n",
		le.Code, counted(summary.Events, "event"), summary.Head, summary.Checksum, seconds, float64(summary.Events)/seconds)
	return nil
}
