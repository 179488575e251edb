package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/adapters/postgres/monitor"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
)

func doctorCommand(modules []plugin.Module) *cobra.Command {
	var path, dataDir string
	o := doctorOptions{Modules: modules}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the databases and the server's credentials of the key service",
		Long: "doctor prints what is wrong with the databases and what to do about it: findings first\n" +
			"(OK, WARN, FAIL), then the figures behind them. It changes nothing, runs only\n" +
			"queries of bounded cost, and shows neither persons nor payloads. It also checks the file\n" +
			"or folder kms.credentials_file: its mode, its rights, and its place. It connects as\n" +
			"the application's role (database.dsn, and keystore.dsn where the key store has a database\n" +
			"of its own); open erasures are counted only if an eraser's DSN is configured. Sessions\n" +
			"of other roles are hidden from it unless that role has pg_read_all_stats.\n\n" +
			"Exit codes: 0 nothing failed, 1 a finding is FAIL.",
		Example: "  backbone doctor                             the \"backbone dev\" of ./dev-data\n" +
			"  backbone doctor --section contention\n" +
			"  backbone doctor --section throughput --legal-entity USMF\n" +
			"  BACKBONE_DATABASE_DSN=postgres://backbone_app@db/backbone backbone doctor --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			o.PhysicalPartitions, o.KMSCredentials = config.Database.PhysicalPartitions, config.KMS.CredentialsFile
			if o.DSN == "" { // else only the named database
				o.DSN, o.KeyStoreDSN, o.EraserDSN = config.Database.DSN.Reveal(), config.KeyStore.DSN.Reveal(), config.KeyStore.EraserDSN.Reveal()
				if o.EraserDSN == "" && o.KeyStoreDSN == "" {
					o.EraserDSN = config.Database.EraserDSN.Reveal()
				}
			}
			if o.DSN == "" {
				file, err := readDevFile(dataDir)
				if err != nil {
					return fault.New(fault.Invalid, "config.dsn_missing", "no database; give --dsn, set BACKBONE_DATABASE_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
				}
				o.DSN, o.EraserDSN, o.KMSCredentials = file.DSN, file.EraserDSN, file.KMS.Credentials
			}
			o.output = newOutput(cmd, o.json)
			sound, err := runDoctor(cmd.Context(), o)
			if err != nil {
				return err
			}
			if !sound {
				return exitError{code: 1}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&path, "config", "", configHelp)
	cmd.Flags().StringVar(&dataDir, "data-dir", defaultDataDir, "data folder of a running \"backbone dev\"")
	cmd.Flags().StringVar(&o.DSN, "dsn", "", "the application's DSN (default: database.dsn, then --data-dir)")
	cmd.Flags().StringVar(&o.Section, "section", "", "only one of: "+strings.Join(doctorSections, ", "))
	cmd.Flags().StringVar(&o.LegalEntity, "legal-entity", "", "throughput of this legal entity only")
	cmd.Flags().StringVar(&o.TenantID, "tenant", "", "throughput of this tenant only")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// The sections of `backbone doctor`, in the order in which they are shown.
var doctorSections = []string{"settings", "credentials", "contention", "delivery", "administration", "storage", "throughput", "distribution"}

// doctorOptions are the flags of `backbone doctor`.
type doctorOptions struct {
	DSN                string // of the log, as backbone_app
	KeyStoreDSN        string // as backbone_app; "" or DSN: the key store lies in the log's database
	EraserDSN          string // of the key store as backbone_eraser; "": open erasures are not asked for
	KMSCredentials     string // file or folder that the server reads; "": not examined
	PhysicalPartitions int
	Modules            []plugin.Module // of this program, for its policies
	Section            string          // "": all
	TenantID           string          // of throughput
	LegalEntity        string
	output
	Now func() time.Time // nil: the machine's
}

// diagnosis is what doctor found. Sections that were not requested, or whose
// query failed, are nil.
type diagnosis struct {
	Sound        bool                  `json:"sound"` // no finding is a failure
	Findings     []monitor.Finding     `json:"findings"`
	Settings     []monitor.Setting     `json:"settings,omitempty"`
	Throughput   *monitor.Throughput   `json:"throughput,omitempty"`
	Contention   *monitor.Contention   `json:"contention,omitempty"`
	Distribution *monitor.Distribution `json:"distribution,omitempty"`
	Storage      *monitor.Storage      `json:"storage,omitempty"`
	Delivery     *monitor.Delivery     `json:"delivery,omitempty"`

	Administration *monitor.Administration `json:"administration,omitempty"`

	KeyStore *keyStoreDiagnosis `json:"key_store,omitempty"` // only when it has a database of its own
}

// keyStoreDiagnosis is the state of a database without a log.
type keyStoreDiagnosis struct {
	Settings   []monitor.Setting   `json:"settings,omitempty"`
	Contention *monitor.Contention `json:"contention,omitempty"`
	Storage    *monitor.Storage    `json:"storage,omitempty"`
}

// runDoctor checks the settings that durability and privacy depend on and the state of the
// databases, prints them, and reports whether no finding is a failure. It changes nothing. Faults:
// doctor.section_unknown, store.dsn_invalid, store.unavailable, legal_entity.not_found.
func runDoctor(ctx context.Context, o doctorOptions) (sound bool, err error) {
	d, err := diagnose(ctx, o)
	if err != nil {
		return false, err
	}
	return d.Sound, o.show(d, func(p *page) { p.findings(d) })
}

// examination collects the findings of the databases, one database at a time.
type examination struct {
	options doctorOptions
	section string // "": all
	prefix  string // added to the subjects of findings
	now     time.Time
	out     []monitor.Finding
}

func diagnose(ctx context.Context, o doctorOptions) (diagnosis, error) {
	if o.Section != "" && !slices.Contains(doctorSections, o.Section) {
		return diagnosis{}, fault.New(fault.Invalid, "doctor.section_unknown", "the sections are %s; choose one of them, or none for all", strings.Join(doctorSections, ", "))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	x := &examination{options: o, section: o.Section, now: o.Now()}
	var d diagnosis
	x.credentials()
	if x.section == "credentials" {
		return x.conclude(d), nil
	}
	if err := x.log(ctx, &d); err != nil {
		return d, err
	}
	if o.KeyStoreDSN != "" && o.KeyStoreDSN != o.DSN {
		x.prefix = "key store: "
		if err := x.keyStore(ctx, &d); err != nil {
			return d, err
		}
	}
	return x.conclude(d), nil
}

func (x *examination) conclude(d diagnosis) diagnosis {
	d.Findings = x.out
	slices.SortStableFunc(d.Findings, func(a, b monitor.Finding) int { return urgency(b) - urgency(a) })
	d.Sound = !slices.ContainsFunc(d.Findings, func(f monitor.Finding) bool { return f.Status == monitor.FindingFail })
	return d
}

// credentials examines the server's credentials of the key service.
func (x *examination) credentials() {
	if x.options.KMSCredentials == "" || !x.includes("credentials") {
		return
	}
	problems, err := kmsd.InspectCredentials(x.options.KMSCredentials)
	for _, p := range problems {
		x.add(monitor.Finding{Section: "credentials", Subject: "key service", Status: monitor.FindingFail, Detail: p.Detail, Next: p.Next})
	}
	switch {
	case err != nil:
		x.add(monitor.Finding{
			Section: "credentials", Subject: "key service", Status: monitor.FindingWarn, Detail: x.options.KMSCredentials + " cannot be read",
			Next: "run this as the user of the server, or correct kms.credentials_file",
		})
	case len(problems) == 0:
		x.add(monitor.Finding{Section: "credentials", Subject: "key service", Status: monitor.FindingOK, Detail: "only the server's user may read them, they have no break-glass rights and lie apart from the keys"})
	}
}

func urgency(f monitor.Finding) int {
	return slices.Index([]monitor.FindingStatus{monitor.FindingOK, monitor.FindingWarn, monitor.FindingFail}, f.Status)
}

func (x *examination) includes(section string) bool { return x.section == "" || x.section == section }

func (x *examination) add(findings ...monitor.Finding) {
	for _, f := range findings {
		f.Subject = x.prefix + f.Subject
		x.out = append(x.out, f)
	}
}

// examine runs one query and adds the findings about its answer. A query that fails becomes a
// finding, and doctor continues, unless the query's parameters are wrong.
func examine[A any](x *examination, section string, query func() (A, error), judge func(A) []monitor.Finding) (*A, error) {
	if !x.includes(section) {
		return nil, nil
	}
	answer, err := query()
	if err == nil {
		x.add(judge(answer)...)
		return &answer, nil
	}
	f, ok := fault.As(err)
	if !ok || f.Kind == fault.NotFound || f.Kind == fault.Invalid {
		return nil, err
	}
	x.add(monitor.Finding{Section: section, Subject: section, Status: monitor.FindingWarn, Detail: "not answered (" + f.Code + ")", Next: f.Detail})
	return nil, nil
}

func (x *examination) log(ctx context.Context, d *diagnosis) (err error) {
	if d.Settings, err = x.settings(ctx, x.options.DSN); err != nil || x.section == "settings" {
		return err
	}
	m, err := monitor.Open(ctx, x.options.DSN)
	if err != nil {
		return err
	}
	defer m.Close(ctx)
	if d.Contention, err = examine(x, "contention", func() (monitor.Contention, error) { return m.Contention(ctx) }, monitor.Contention.Findings); err != nil {
		return err
	}
	if d.Storage, err = examine(x, "storage", func() (monitor.Storage, error) { return m.Storage(ctx, x.options.PhysicalPartitions) }, monitor.Storage.Findings); err != nil {
		return err
	}
	if !m.HasLog() {
		return fault.New(fault.Unavailable, "store.not_migrated", "the database has no log; name the right one, or run backbone migrate")
	}
	if d.Delivery, err = examine(x, "delivery", func() (monitor.Delivery, error) { return x.delivery(ctx, m) },
		func(a monitor.Delivery) []monitor.Finding { return a.Findings(x.now) }); err != nil {
		return err
	}
	if d.Administration, err = examine(x, "administration", func() (monitor.Administration, error) { return m.Administration(ctx) }, x.judgeAdministration); err != nil {
		return err
	}
	if d.Throughput, err = examine(x, "throughput", func() (monitor.Throughput, error) {
		return m.Throughput(ctx, monitor.ThroughputQuery{TenantID: x.options.TenantID, LegalEntity: x.options.LegalEntity, Now: x.now})
	}, monitor.Throughput.Findings); err != nil {
		return err
	}
	d.Distribution, err = examine(x, "distribution", func() (monitor.Distribution, error) { return m.Distribution(ctx) }, monitor.Distribution.Findings)
	return err
}

// judgeAdministration compares with the policies of this program.
func (x *examination) judgeAdministration(a monitor.Administration) []monitor.Finding {
	digest, err := wire.PolicyDigest(x.options.Modules)
	if err != nil {
		digest = "" // the modules do not fit together, which the start of a server reports
	}
	return a.Findings(digest)
}

func (x *examination) delivery(ctx context.Context, m *monitor.Monitor) (monitor.Delivery, error) {
	d, err := m.Delivery(ctx, x.now)
	if err != nil || x.options.EraserDSN == "" {
		return d, err
	}
	open, err := openErasures(ctx, x.options.EraserDSN)
	if err == nil {
		d.Erasures = &open
		return d, nil
	}
	// The figures of the log are reported without those of the key store.
	f, ok := fault.As(err)
	if !ok || f.Kind == fault.Invalid {
		return d, err
	}
	d.ErasuresUnknown = f
	return d, nil
}

func openErasures(ctx context.Context, dsn string) (monitor.OpenErasures, error) {
	m, err := monitor.Open(ctx, dsn)
	if err != nil {
		return monitor.OpenErasures{}, err
	}
	defer m.Close(ctx)
	return m.OpenErasures(ctx)
}

func (x *examination) keyStore(ctx context.Context, d *diagnosis) (err error) {
	k := &keyStoreDiagnosis{}
	if k.Settings, err = x.settings(ctx, x.options.KeyStoreDSN); err != nil {
		return err
	}
	if d.KeyStore = k; !x.includes("contention") && !x.includes("storage") {
		return nil
	}
	m, err := monitor.Open(ctx, x.options.KeyStoreDSN)
	if err != nil {
		return err
	}
	defer m.Close(ctx)
	if k.Contention, err = examine(x, "contention", func() (monitor.Contention, error) { return m.Contention(ctx) }, monitor.Contention.Findings); err != nil {
		return err
	}
	k.Storage, err = examine(x, "storage", func() (monitor.Storage, error) { return m.Storage(ctx, 0) }, monitor.Storage.Findings)
	return err
}

// settings yields one finding if all settings are right, and one for each wrong setting.
func (x *examination) settings(ctx context.Context, dsn string) ([]monitor.Setting, error) {
	if !x.includes("settings") {
		return nil, nil
	}
	settings, err := monitor.CheckSettings(ctx, dsn)
	if err != nil {
		return nil, err
	}
	wrong := 0
	for _, s := range settings {
		if s.Sound {
			continue
		}
		wrong++
		x.add(monitor.Finding{
			Section: "settings", Subject: s.Name, Status: monitor.FindingFail, Detail: fmt.Sprintf("is %s; wanted: %s, since %s", s.Value, s.Wanted, s.Why),
			Next: "correct it in postgresql.conf or with ALTER SYSTEM, reload the server, and run this again",
		})
	}
	if wrong == 0 {
		x.add(monitor.Finding{
			Section: "settings", Subject: "durability and privacy", Status: monitor.FindingOK, Detail: fmt.Sprintf("%d settings are as they must be", len(settings)),
		})
	}
	return settings, nil
}

const maxRows = 20 // rows of a table; --json has all

// section begins a table with a title; its rows are written with indented.
func (p *page) section(title string, columns ...any) {
	p.line("\n%s", title)
	p.indented(columns...)
}

func (p *page) indented(cells ...any) {
	cells[0] = fmt.Sprint("  ", cells[0])
	p.row(cells...)
}

// findings writes the findings first, then the figures behind them.
func (p *page) findings(d diagnosis) {
	for _, f := range d.Findings {
		p.line("%-4s  %s: %s: %s", strings.ToUpper(string(f.Status)), f.Section, f.Subject, f.Detail)
		if f.Next != "" {
			p.line("      -> %s", f.Next)
		}
	}
	p.settings("", d.Settings)
	p.contention("", d.Contention)
	p.delivery(d.Delivery)
	p.storage("", d.Storage)
	p.throughput(d.Throughput)
	p.distribution(d.Distribution)
	if k := d.KeyStore; k != nil {
		p.settings("Key store: ", k.Settings)
		p.contention("Key store: ", k.Contention)
		p.storage("Key store: ", k.Storage)
	}
}

func (p *page) settings(prefix string, settings []monitor.Setting) {
	if len(settings) == 0 {
		return
	}
	p.section(prefix+"Settings", "SETTING", "VALUE", "WANTED", "", "WHY")
	for _, v := range settings {
		verdict := "ok"
		if !v.Sound {
			verdict = "WRONG"
		}
		p.indented(v.Name, v.Value, v.Wanted, verdict, v.Why)
	}
}

func (p *page) contention(prefix string, c *monitor.Contention) {
	if c == nil {
		return
	}
	if len(c.Waits) > 0 {
		p.section(prefix+"Waiting for locks", "PID", "WAITS", "FOR", "BEHIND")
		for _, w := range c.Waits[:min(maxRows, len(c.Waits))] {
			what := strings.TrimSpace(w.LockType + " " + w.Relation)
			if w.LegalEntity != "" {
				what = "head of " + w.TenantID + "/" + w.LegalEntity
			}
			p.indented(fmt.Sprint(w.PID), seconds(w.Seconds), what, strings.Trim(fmt.Sprint(w.BlockedBy), "[]"))
		}
	}
	if len(c.Sessions) > 0 {
		p.section(prefix+"Open transactions", "PID", "ROLE", "APPLICATION", "STATE", "AGE", "SNAPSHOT (transactions ago)")
		for _, t := range c.Sessions[:min(maxRows, len(c.Sessions))] {
			snapshot := "-"
			if t.SnapshotAge >= 0 {
				snapshot = fmt.Sprint(t.SnapshotAge)
			}
			p.indented(fmt.Sprint(t.PID), t.Role, t.Application, t.State, seconds(t.Seconds), snapshot)
		}
	}
	for _, h := range c.Holders {
		p.line("  %s %s holds back %d transactions", h.Kind, h.Name, h.SnapshotAge)
	}
}

func (p *page) delivery(d *monitor.Delivery) {
	if d == nil || len(d.Projections) == 0 {
		return
	}
	p.section("Projections", "PROJECTION", "ROLE", "STATE", "LEGAL ENTITIES", "EVENTS BEHIND", "SINCE", "BLOCKED IN")
	for _, v := range d.Projections {
		p.indented(fmt.Sprintf("%s v%d", v.Projection, v.Version), cmp.Or(v.Role, "-"), cmp.Or(v.State, "-"), fmt.Sprint(v.Entities), fmt.Sprint(v.Behind), stamp(v.WaitingSince), fmt.Sprint(v.Faulted))
	}
}

func (p *page) storage(prefix string, v *monitor.Storage) {
	if v == nil {
		return
	}
	title := fmt.Sprintf("%sTables, %s in all", prefix, megabytes(v.Bytes))
	if v.PayloadShare > 0 {
		title += fmt.Sprintf(", %.0f %% of it payloads", 100*v.PayloadShare)
	}
	p.section(title, "TABLE", "PARTS", "ROWS (estimate)", "ROWS ON DISK", "INDEXES")
	for _, t := range v.Tables[:min(maxRows, len(v.Tables))] {
		rows := "-"
		if t.Rows >= 0 {
			rows = fmt.Sprint(t.Rows)
		}
		p.indented(t.Name, fmt.Sprint(t.Partitions), rows, megabytes(t.Bytes), megabytes(t.IndexBytes))
	}
	p.section(prefix+"Rows that change", "TABLE", "LIVE (estimate)", "DEAD (estimate)", "VACUUM", "ANALYZE")
	for _, t := range v.VacuumStates[:min(maxRows, len(v.VacuumStates))] {
		p.indented(t.Name, fmt.Sprint(t.Live), fmt.Sprint(t.Dead), stamp(t.VacuumedAt), stamp(t.AnalyzedAt))
	}
}

func (p *page) throughput(t *monitor.Throughput) {
	if t == nil {
		return
	}
	p.section("Throughput by hour (UTC); ~ is estimated from a sample", "HOUR", "EVENTS", "COMMITS", "EVENTS PER COMMIT")
	for _, h := range t.Hours {
		p.hour(h)
	}
	if len(t.LegalEntities) == 1 {
		return // the table would repeat the one above
	}
	p.section("Events by legal entity", "LEGAL ENTITY", "EVENTS")
	for _, e := range t.LegalEntities[:min(maxRows, len(t.LegalEntities))] {
		var n int64
		for _, h := range e.Hours {
			n += h.Events
		}
		p.indented(e.TenantID+"/"+e.LegalEntity, fmt.Sprint(n))
	}
}

func (p *page) hour(h monitor.HourOfAppends) {
	commits, each := fmt.Sprint(h.Commits), "-"
	if h.Estimated {
		commits = "~" + commits
	}
	if h.Commits > 0 {
		each = fmt.Sprintf("%.1f", float64(h.Events)/float64(h.Commits))
	}
	p.indented(h.Hour.Format("2006-01-02 15:00"), fmt.Sprint(h.Events), commits, each)
}

func (p *page) distribution(d *monitor.Distribution) {
	if d == nil {
		return
	}
	p.section("Legal entities", "LEGAL ENTITY", "PARTITION", "EVENTS")
	for _, e := range d.LegalEntities[:min(maxRows, len(d.LegalEntities))] {
		p.indented(e.TenantID+"/"+e.LegalEntity, fmt.Sprint(e.Partition), fmt.Sprint(e.Events))
	}
	how := "counted"
	if !d.Exact {
		how = fmt.Sprintf("estimated from %d events", d.Sampled)
	}
	for _, group := range []struct {
		title string
		types []monitor.TypeShare
	}{{"Event types", d.EventTypes}, {"Stream types", d.StreamTypes}} {
		p.section(group.title+", "+how, "TYPE", "EVENTS", "SHARE", "PAYLOAD (bytes)")
		for _, t := range group.types[:min(maxRows, len(group.types))] {
			p.indented(t.Type, fmt.Sprint(t.Events), fmt.Sprintf("%.1f %%", 100*float64(t.Events)/float64(max(1, d.Events))), fmt.Sprint(t.PayloadBytes))
		}
	}
	if len(d.Streams) > 0 {
		p.section("Largest streams that the sample met", "LEGAL ENTITY", "TYPE", "FIRST EVENT (sequence)", "EVENTS")
		for _, v := range d.Streams {
			p.indented(v.LegalEntity, v.StreamType, fmt.Sprint(v.FirstSequence), fmt.Sprint(v.Events))
		}
	}
	if len(d.Keys) > 0 {
		p.section("Keys that events refer to most (the planner's estimate)", "KIND", "COMMON KEYS", "EVENTS OF THE HOTTEST", "EVENTS OF ALL THESE")
		for _, k := range d.Keys {
			p.indented(k.Kind, fmt.Sprint(k.CommonKeys), fmt.Sprint(k.Hottest), fmt.Sprint(k.References))
		}
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}
