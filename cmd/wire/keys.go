package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// KeysOptions are the flags of `backbone keys` and `backbone erasure replay`.
type KeysOptions struct {
	Config   configs.Config
	Tenant   string // "" is all
	Export   uint64 // number; 0 is the newest
	Verifier []string
	JSON     bool
	Out      io.Writer
	Err      io.Writer // progress
	Terminal bool      // Err is a terminal
}

// DevConfig is the configuration that leads to a running `backbone dev`, for tools.
func DevConfig(f DevFile) configs.Config {
	c := configs.Default()
	c.Database.DSN, c.Database.EraserDSN = configs.DSN(f.DSN), configs.DSN(f.EraserDSN)
	c.KMS.Endpoint, c.KMS.CredentialsFile = f.KMS.Endpoint, f.KMS.Credentials
	c.Erasure.ExportDirectory = f.Exports
	return c
}

// withKeys opens the keys for a tool.
func withKeys(ctx context.Context, o KeysOptions, f func(*keyring) error) (err error) {
	if o.Config.Database.DSN == "" {
		return fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
	}
	o.Config.KMS.AllowLocal = true // a tool is not asked again what the operator wrote down for it
	if err := requireKeys(o.Config); err != nil {
		return err
	}
	store, err := postgres.Open(ctx, postgres.Config{DSN: o.Config.Database.DSN.Reveal(), MaxClockSkew: -1})
	if err != nil {
		return err
	}
	installation, err := store.Installation(ctx)
	store.Close()
	if err != nil {
		return err
	}
	service, err := openKeyService(ctx, o.Config.KMS, nil, auditLog(o.Err))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.end()) }()
	ring, err := openKeyring(ctx, o.Config, service, installation.LogName, system.Clock{}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return err
	}
	defer ring.close()
	return f(ring)
}

func (o KeysOptions) json(v any) error {
	encoder := json.NewEncoder(o.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// progress shows steps: a bar on a terminal for those that count, else a line each.
func (o KeysOptions) progress() keyrotation.Progress {
	show := newProgress(o.Err, o.Terminal)
	return func(s keyrotation.Step) {
		title := s.Title
		if s.TenantID != "" {
			title = s.TenantID + ": " + title
		}
		if o.Terminal && s.Total == 0 {
			return // a bar needs an end
		}
		show.report(title, int(s.Done), int(s.Total))
		if o.Terminal && s.Done >= s.Total {
			show = newProgress(o.Err, o.Terminal)
		}
	}
}

// epochLine is a KEK as `backbone keys list` shows it.
type epochLine struct {
	TenantID string         `json:"tenant_id"`
	Epoch    uint32         `json:"epoch"`
	State    ports.KEKState `json:"state"`
	Keys     int64          `json:"keys"` // wrapped with it
	KMSKey   string         `json:"kms_key"`
}

// ListKeys prints the KEKs.
func ListKeys(ctx context.Context, o KeysOptions) error {
	return withKeys(ctx, o, func(k *keyring) error {
		keks, err := k.rotation.List(ctx, o.Tenant)
		if err != nil {
			return err
		}
		lines := []epochLine{}
		for _, kek := range keks {
			n, err := k.eraser.CountWrappedWith(ctx, kek.TenantID, kek.Epoch)
			if err != nil {
				return err
			}
			lines = append(lines, epochLine{kek.TenantID, kek.Epoch, kek.State, n, kek.KeyID})
		}
		if o.JSON {
			return o.json(map[string]any{"epochs": lines})
		}
		table := tabwriter.NewWriter(o.Out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(table, "TENANT\tEPOCH\tSTATE\tKEYS\tKEY IN THE KEY SERVICE")
		for _, l := range lines {
			fmt.Fprintf(table, "%s\t%d\t%s\t%d\t%s\n", l.TenantID, l.Epoch, l.State, l.Keys, l.KMSKey)
		}
		return table.Flush()
	})
}

// RotateKeys rotates the KEK of a tenant, of every tenant that has one for "".
func RotateKeys(ctx context.Context, o KeysOptions) error {
	return withKeys(ctx, o, func(k *keyring) error {
		tenants := []string{o.Tenant}
		if o.Tenant == "" {
			keks, err := k.rotation.List(ctx, "")
			if err != nil {
				return err
			}
			tenants = tenants[:0]
			for _, kek := range keks {
				tenants = append(tenants, kek.TenantID)
			}
			slices.Sort(tenants)
			tenants = slices.Compact(tenants)
		}
		if len(tenants) == 0 {
			return fault.New(fault.NotFound, "keys.kek_missing", "no tenant has a key that wraps keys yet; nothing to rotate")
		}
		done := []keyrotation.Outcome{}
		var failures []error
		for _, tenantID := range tenants {
			out, err := k.rotation.Rotate(ctx, tenantID, o.progress())
			if err != nil {
				failures = append(failures, err)
				continue
			}
			done = append(done, out)
			if !o.JSON {
				fmt.Fprintln(o.Out, describeRotation(out))
			}
		}
		if o.JSON {
			failures = append(failures, o.json(map[string]any{"rotated": done, "failed": len(tenants) - len(done)}))
		}
		return errors.Join(failures...)
	})
}

func describeRotation(r keyrotation.Outcome) string {
	text := fmt.Sprintf("%s: epoch %d is active, %s wrapped again. Export %d of the key store restores.\nEpoch %d opens nothing any more and is destroyed on %s",
		r.TenantID, r.Active, counted(r.Rewrapped, "key"), r.Export, r.Ended, r.DeletionAt.UTC().Format(time.DateOnly))
	if r.Covers == 0 {
		return text + "."
	}
	return text + fmt.Sprintf("; then nobody can undo the erasures up to receipt %d from a backup.", r.Covers)
}

// ExportKeys exports the key store to the export store.
func ExportKeys(ctx context.Context, o KeysOptions) error {
	return withKeys(ctx, o, func(k *keyring) error {
		e, err := k.rotation.Export(ctx, o.progress())
		if err != nil {
			return err
		}
		if o.JSON {
			return o.json(e)
		}
		fmt.Fprintf(o.Out, "Export %d: %s in %s.\n", e.Number, counted(e.Lines, "line"), counted(len(e.Parts), "part"))
		return nil
	})
}

// RestoreKeys brings keys back from an export after the key store was restored from a
// backup.
func RestoreKeys(ctx context.Context, o KeysOptions) error {
	return withKeys(ctx, o, func(k *keyring) error {
		out, err := k.rotation.Restore(ctx, o.Export, o.progress())
		if err != nil {
			return err
		}
		withheld := k.gate.Check(ctx)
		if withheld != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if o.JSON {
			return o.json(map[string]any{"export": out.Export, "keys": out.Keys, "dead_epochs": len(out.Dead), "receipts_behind": withheld != nil})
		}
		fmt.Fprint(o.Out, describeRestore(out, withheld))
		return nil
	})
}

const afterBackup = "Erasure requests that were made after the backup are not in the database; their receipts and certificates are in the folder of exports.\n"

// describeRestore tells what came back, and what the gate says afterwards: a database
// that lacks no key may have forgotten erasures, and the other way round.
func describeRestore(r keyrotation.Restored, withheld error) string {
	text := fmt.Sprintf("Nothing came from export %d: the database lacks no key that is in it.\n", r.Export)
	if r.Keys > 0 {
		verb := "are"
		if len(r.Dead) == 1 {
			verb = "is"
		}
		text = fmt.Sprintf("%s came from export %d; %s %s dead.\n", counted(r.Keys, "key"), r.Export, counted(len(r.Dead), "epoch"), verb)
	}
	if withheld == nil {
		text += "No erasure is forgotten: the database knows all receipts in the folder of exports.\n"
	} else {
		why := withheld.Error()
		if f, ok := fault.As(withheld); ok {
			why = f.Detail
		}
		text += "Until the next step is done, personal data is withheld: " + why + ".\n"
	}
	if r.Keys > 0 || withheld != nil {
		text += afterBackup
	}
	return text
}

// ReplayErasures does again what receipts outside the database name and the database
// has forgotten.
func ReplayErasures(ctx context.Context, o KeysOptions) error {
	return withKeys(ctx, o, func(k *keyring) error {
		keys := o.Verifier
		if len(keys) == 0 {
			var err error
			if keys, err = storedVerifierKeys(ctx, k.exports); err != nil {
				return err
			}
		}
		show := newProgress(o.Err, o.Terminal)
		var receipts []erasure.Receipt
		_, err := erasure.Replay(ctx, erasure.ReplayConfig{
			Exports: k.exports, Register: k.eraser, Notes: signednote.Opener{}, VerifierKeys: keys,
			Progress: func(done, total int, r erasure.Receipt) {
				receipts = append(receipts, r)
				show.report("Receipts", done, total)
			},
		})
		if err != nil {
			return err
		}
		lost, err := lostRequests(ctx, k.eraser, receipts)
		if err != nil {
			return err
		}
		if o.JSON {
			return o.json(map[string]any{"receipts": len(receipts), "requests_lost": lost})
		}
		fmt.Fprint(o.Out, describeReplay(len(receipts), lost))
		return nil
	})
}

// erasureRequests reads requests. ports.ErasureRegister has it.
type erasureRequests interface {
	Erasure(ctx context.Context, tenantID string, id event.ID) (ports.ErasureRequest, error)
}

// lostRequests counts the receipts whose requests the database does not have.
func lostRequests(ctx context.Context, register erasureRequests, receipts []erasure.Receipt) (lost int, err error) {
	for _, r := range receipts {
		if _, err := register.Erasure(ctx, r.TenantID, r.RequestID); err != nil {
			if fault.KindOf(err) != fault.NotFound {
				return lost, err
			}
			lost++
		}
	}
	return lost, nil
}

func describeReplay(receipts, lost int) string {
	text := fmt.Sprintf("%d receipts were gone through; whoever they name stays erased. Servers notice within a minute.\n", receipts)
	switch receipts {
	case 0:
		text = "There are no receipts in the folder of exports: nobody was erased.\n"
	case 1:
		text = "1 receipt was gone through; whoever it names stays erased. Servers notice within a minute.\n"
	}
	if lost > 0 {
		text += fmt.Sprintf("The database lacks %s of these erasures. ", counted(lost, "request")) + afterBackup +
			"Requests of that time that had no receipt yet have to be made again.\n"
	}
	return text
}
