package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/domain/fault"
)

// The sections of `backbone doctor`, in the order in which they are shown.
var doctorSections = []string{"settings", "contention", "delivery", "storage", "throughput", "distribution"}

// DoctorSections lists what `backbone doctor --section` takes.
func DoctorSections() []string { return slices.Clone(doctorSections) }

// DoctorOptions are the flags of `backbone doctor`.
type DoctorOptions struct {
	DSN                string // of the log, as backbone_app
	KeyStoreDSN        string // as backbone_app; "" or DSN: the key store lies in the log's database
	EraserDSN          string // of the key store as backbone_eraser; "": open erasures are not asked for
	PhysicalPartitions int
	Section            string // "": all
	TenantID           string // of throughput
	LegalEntity        string
	JSON               bool
	Out                io.Writer
	Now                func() time.Time // nil: the machine's
}

// Diagnosis is what doctor found. Sections that were not asked for, or not answered,
// are nil.
type Diagnosis struct {
	Sound        bool                   `json:"sound"` // no finding is a failure
	Findings     []postgres.Finding     `json:"findings"`
	Settings     []postgres.Setting     `json:"settings,omitempty"`
	Throughput   *postgres.Throughput   `json:"throughput,omitempty"`
	Contention   *postgres.Contention   `json:"contention,omitempty"`
	Distribution *postgres.Distribution `json:"distribution,omitempty"`
	Storage      *postgres.Storage      `json:"storage,omitempty"`
	Delivery     *postgres.Delivery     `json:"delivery,omitempty"`
	KeyStore     *KeyStoreDiagnosis     `json:"key_store,omitempty"` // only when it has a database of its own
}

// KeyStoreDiagnosis is what can be asked of a database without a log.
type KeyStoreDiagnosis struct {
	Settings   []postgres.Setting   `json:"settings,omitempty"`
	Contention *postgres.Contention `json:"contention,omitempty"`
	Storage    *postgres.Storage    `json:"storage,omitempty"`
}

// Doctor looks at what Backbone's promises depend on and at how the databases are
// doing, prints it, and reports whether nothing failed. It changes nothing. Faults:
// doctor.section_unknown, store.dsn_invalid, store.unavailable, legal_entity.not_found.
func Doctor(ctx context.Context, o DoctorOptions) (sound bool, err error) {
	d, err := diagnose(ctx, o)
	if err != nil {
		return false, err
	}
	if o.JSON {
		encoder := json.NewEncoder(o.Out)
		encoder.SetIndent("", "  ")
		return d.Sound, encoder.Encode(d)
	}
	return d.Sound, d.print(o.Out)
}

// examination goes through one database.
type examination struct {
	options DoctorOptions
	section string // "": all
	prefix  string // of the findings' subjects
	now     time.Time
	out     []postgres.Finding
}

func diagnose(ctx context.Context, o DoctorOptions) (Diagnosis, error) {
	if o.Section != "" && !slices.Contains(doctorSections, o.Section) {
		return Diagnosis{}, fault.New(fault.Invalid, "doctor.section_unknown", "the sections are %s; choose one of them, or none for all", strings.Join(doctorSections, ", "))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	x := &examination{options: o, section: o.Section, now: o.Now()}
	var d Diagnosis
	if err := x.log(ctx, &d); err != nil {
		return d, err
	}
	if o.KeyStoreDSN != "" && o.KeyStoreDSN != o.DSN {
		x.prefix = "key store: "
		if err := x.keyStore(ctx, &d); err != nil {
			return d, err
		}
	}
	d.Findings = x.out
	slices.SortStableFunc(d.Findings, func(a, b postgres.Finding) int { return urgency(b) - urgency(a) })
	d.Sound = !slices.ContainsFunc(d.Findings, func(f postgres.Finding) bool { return f.Status == postgres.FindingFail })
	return d, nil
}

func urgency(f postgres.Finding) int {
	return slices.Index([]postgres.FindingStatus{postgres.FindingOK, postgres.FindingWarn, postgres.FindingFail}, f.Status)
}

func (x *examination) wants(section string) bool { return x.section == "" || x.section == section }

func (x *examination) found(findings ...postgres.Finding) {
	for _, f := range findings {
		f.Subject = x.prefix + f.Subject
		x.out = append(x.out, f)
	}
}

// ask puts one question. One that cannot be answered is a finding and does not keep
// the others from being asked, unless the caller asked it wrongly.
func ask[A any](x *examination, section string, question func() (A, error), judge func(A) []postgres.Finding) (*A, error) {
	if !x.wants(section) {
		return nil, nil
	}
	answer, err := question()
	if err == nil {
		x.found(judge(answer)...)
		return &answer, nil
	}
	f, ok := fault.As(err)
	if !ok || f.Kind == fault.NotFound || f.Kind == fault.Invalid {
		return nil, err
	}
	x.found(postgres.Finding{Section: section, Subject: section, Status: postgres.FindingWarn, Detail: "not answered (" + f.Code + ")", Next: f.Detail})
	return nil, nil
}

func (x *examination) log(ctx context.Context, d *Diagnosis) (err error) {
	if d.Settings, err = x.settings(ctx, x.options.DSN); err != nil || x.section == "settings" {
		return err
	}
	m, err := postgres.OpenMonitor(ctx, x.options.DSN)
	if err != nil {
		return err
	}
	defer m.Close(ctx)
	if d.Contention, err = ask(x, "contention", func() (postgres.Contention, error) { return m.Contention(ctx) }, postgres.Contention.Findings); err != nil {
		return err
	}
	if d.Storage, err = ask(x, "storage", func() (postgres.Storage, error) { return m.Storage(ctx, x.options.PhysicalPartitions) }, postgres.Storage.Findings); err != nil {
		return err
	}
	if !m.HasLog() {
		return fault.New(fault.Unavailable, "store.not_migrated", "the database has no log; name the right one, or run backbone migrate")
	}
	if d.Delivery, err = ask(x, "delivery", func() (postgres.Delivery, error) { return x.delivery(ctx, m) },
		func(a postgres.Delivery) []postgres.Finding { return a.Findings(x.now) }); err != nil {
		return err
	}
	if d.Throughput, err = ask(x, "throughput", func() (postgres.Throughput, error) {
		return m.Throughput(ctx, postgres.ThroughputQuery{TenantID: x.options.TenantID, LegalEntity: x.options.LegalEntity, Now: x.now})
	}, postgres.Throughput.Findings); err != nil {
		return err
	}
	d.Distribution, err = ask(x, "distribution", func() (postgres.Distribution, error) { return m.Distribution(ctx) }, postgres.Distribution.Findings)
	return err
}

func (x *examination) delivery(ctx context.Context, m *postgres.Monitor) (postgres.Delivery, error) {
	d, err := m.Delivery(ctx, x.now)
	if err != nil || x.options.EraserDSN == "" {
		return d, err
	}
	open, err := openErasures(ctx, x.options.EraserDSN)
	if err == nil {
		d.Erasures = &open
		return d, nil
	}
	// What could be asked elsewhere stays answered.
	f, ok := fault.As(err)
	if !ok || f.Kind == fault.Invalid {
		return d, err
	}
	d.ErasuresUnknown = f
	return d, nil
}

func openErasures(ctx context.Context, dsn string) (postgres.OpenErasures, error) {
	m, err := postgres.OpenMonitor(ctx, dsn)
	if err != nil {
		return postgres.OpenErasures{}, err
	}
	defer m.Close(ctx)
	return m.OpenErasures(ctx)
}

func (x *examination) keyStore(ctx context.Context, d *Diagnosis) (err error) {
	k := &KeyStoreDiagnosis{}
	if k.Settings, err = x.settings(ctx, x.options.KeyStoreDSN); err != nil {
		return err
	}
	if d.KeyStore = k; !x.wants("contention") && !x.wants("storage") {
		return nil
	}
	m, err := postgres.OpenMonitor(ctx, x.options.KeyStoreDSN)
	if err != nil {
		return err
	}
	defer m.Close(ctx)
	if k.Contention, err = ask(x, "contention", func() (postgres.Contention, error) { return m.Contention(ctx) }, postgres.Contention.Findings); err != nil {
		return err
	}
	k.Storage, err = ask(x, "storage", func() (postgres.Storage, error) { return m.Storage(ctx, 0) }, postgres.Storage.Findings)
	return err
}

// settings are judged as one when they are right, and each for itself when not.
func (x *examination) settings(ctx context.Context, dsn string) ([]postgres.Setting, error) {
	if !x.wants("settings") {
		return nil, nil
	}
	settings, err := postgres.CheckSettings(ctx, dsn)
	if err != nil {
		return nil, err
	}
	wrong := 0
	for _, s := range settings {
		if s.Sound {
			continue
		}
		wrong++
		x.found(postgres.Finding{
			Section: "settings", Subject: s.Name, Status: postgres.FindingFail, Detail: fmt.Sprintf("is %s; wanted: %s, since %s", s.Value, s.Wanted, s.Why),
			Next: "correct it in postgresql.conf or with ALTER SYSTEM, reload the server, and run this again",
		})
	}
	if wrong == 0 {
		x.found(postgres.Finding{
			Section: "settings", Subject: "durability and privacy", Status: postgres.FindingOK, Detail: fmt.Sprintf("%d settings are as they must be", len(settings)),
		})
	}
	return settings, nil
}
