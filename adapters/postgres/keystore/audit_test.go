package keystore_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// TestContradictions edits the rows of an erasure and of a live key as a superuser.
func TestContradictions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit string
		want []ports.ContradictionKind
	}{
		"as stored":          {`SELECT`, nil},
		"fence removed":      {`DELETE FROM keystore.subject_fences`, []ports.ContradictionKind{ports.FenceMissing}},
		"fence lifted":       {`UPDATE keystore.subject_fences SET lifted_at = now()`, []ports.ContradictionKind{ports.FenceMissing}},
		"fence moved":        {`UPDATE keystore.subject_fences SET subject_id = 'employee:E-9'`, []ports.ContradictionKind{ports.FenceMissing}},
		"fence invented":     {`INSERT INTO keystore.subject_fences (fenced_at, request_id, partition_id, class, subject_id) VALUES (now(), gen_random_uuid(), 1, 0, 'employee:E-2')`, []ports.ContradictionKind{ports.FenceUnexplained}},
		"fence copied":       {`INSERT INTO keystore.subject_fences (fenced_at, request_id, partition_id, class, subject_id) SELECT now(), f.request_id, 1, f.class, 'employee:E-2' FROM keystore.subject_fences f`, []ports.ContradictionKind{ports.FenceUnexplained}},
		"destroyed beside":   {`INSERT INTO keystore.subject_fences (fenced_at, request_id, partition_id, class, subject_id) SELECT now(), f.request_id, 1, f.class, 'employee:E-2' FROM keystore.subject_fences f; UPDATE keystore.data_subjects SET state = 'destroyed', active_version = 0, destroyed_at = now() WHERE subject_id = 'employee:E-2'`, []ports.ContradictionKind{ports.FenceUnexplained, ports.DestroyedUnexplained}},
		"classes":            {`UPDATE keystore.pii_deletion_log SET erased_classes = '{}'`, []ports.ContradictionKind{ports.ClassesDiffer}},
		"destroyed by hand":  {`DELETE FROM keystore.data_subject_keys; UPDATE keystore.data_subjects SET state = 'destroyed', active_version = 0, destroyed_at = now()`, []ports.ContradictionKind{ports.DestroyedUnexplained}},
		"version removed":    {`DELETE FROM keystore.data_subject_keys`, []ports.ContradictionKind{ports.KeyWithoutVersion}},
		"key row removed":    {`DELETE FROM keystore.data_subjects WHERE state = 'destroyed'`, []ports.ContradictionKind{ports.KeyRowMissing}},
		"another tenant's":   {`UPDATE keystore.data_subjects SET tenant_id = 'other' WHERE state = 'active'`, []ports.ContradictionKind{ports.ForeignTenant}},
		"receipt renumbered": {`UPDATE keystore.erasure_receipts SET number = 3`, []ports.ContradictionKind{ports.ReceiptNumber}},
		"classes no list":    {`UPDATE keystore.pii_deletion_log SET classes = '{"class":0}'`, []ports.ContradictionKind{ports.ClassesDiffer}},
		"classes no numbers": {`UPDATE keystore.pii_deletion_log SET classes = '[1, {"class":"x","erased":true}]'`, []ports.ContradictionKind{ports.ClassesDiffer}},
		"version invented":   {`INSERT INTO keystore.data_subject_keys SELECT created_at, partition_id, 2, kek_epoch, class, tenant_id, subject_id, wrapped, fingerprint FROM keystore.data_subject_keys`, []ports.ContradictionKind{ports.VersionUnexplained}},
		"receipt's print":    {`UPDATE keystore.erasure_receipts SET keys = replace(keys::text, 'fingerprints" : ["', 'fingerprints" : ["f')::json`, []ports.ContradictionKind{ports.ReceiptKeys}},
		"receipt's key":      {`UPDATE keystore.erasure_receipts SET keys = '[]'`, []ports.ContradictionKind{ports.ReceiptKeys, ports.DestroyedUnexplained}},
		"keys no list":       {`UPDATE keystore.erasure_receipts SET keys = '{"x":1}'`, []ports.ContradictionKind{ports.ReceiptKeys, ports.DestroyedUnexplained}},
		"keys no objects":    {`UPDATE keystore.erasure_receipts SET keys = '[1, "x", {"partition":"x","class":[],"fingerprints":{}}]'`, []ports.ContradictionKind{ports.ReceiptKeys, ports.DestroyedUnexplained}},
		"receipt invented":   {`INSERT INTO keystore.erasure_receipts (number, destroyed_at, generation, request_id, tenant_id, keys) SELECT 2, destroyed_at, generation, gen_random_uuid(), tenant_id, keys FROM keystore.erasure_receipts`, []ports.ContradictionKind{ports.ReceiptUnexplained}},
		"receipt of nothing": {`INSERT INTO keystore.erasure_receipts (number, destroyed_at, generation, request_id, tenant_id, keys) SELECT 2, destroyed_at, generation, gen_random_uuid(), 'x', keys FROM keystore.erasure_receipts`, []ports.ContradictionKind{ports.ReceiptUnexplained}},
		"older generation":   {`UPDATE keystore.erasure_receipts SET generation = 0`, []ports.ContradictionKind{ports.ReceiptGeneration}},
		"generation":         {`UPDATE keystore.generation SET generation = 0`, []ports.ContradictionKind{ports.GenerationSetBack}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.KeyStoreDatabase(t)
			k := pgtest.OpenKeys(t, dsn)
			activeKEK(t, k, 1)
			mintStandard(t, k, "employee:E-1")
			mintStandard(t, k, "employee:E-2")
			register := k.Erasures()
			r := ports.ErasureRequest{
				ID: event.ID(uuid.New()), TenantID: keyTenant, Subject: "employee:E-1", Partitions: []event.PartitionID{1}, Basis: shredding.GDPRArticle17,
				Reason: "letter", RequestedBy: "p-1", RequestedAt: time.Now(), DueOn: event.DateOf(time.Now()),
			}
			require.NoError(t, register.AddErasure(t.Context(), r))
			r.Revision, r.State, r.Scope, r.Preview = 1, shredding.ErasurePreviewed, event.Hash{1}, []byte(`{}`)
			r, err := register.MoveErasure(t.Context(), r)
			require.NoError(t, err)
			r, err = register.ApproveErasure(t.Context(), r.ID, "p-2", event.Hash{1}, time.Now())
			require.NoError(t, err)
			r.Classes = []ports.ErasureClass{{Class: shredding.KeyStandard, Erased: true}}
			r, err = register.FenceErasure(t.Context(), r)
			require.NoError(t, err)
			destroyed, _, err := register.DestroyErasure(t.Context(), r.ID, nil)
			require.NoError(t, err)
			require.NoError(t, register.SaveReceipt(t.Context(), 1, conformance.NoteOf(r, destroyed), false))

			_, err = pgtest.Connect(t, dsn).Exec(t.Context(), c.edit)
			require.NoError(t, err)
			found, err := register.Contradictions(t.Context(), keyTenant, []event.PartitionID{1})
			require.NoError(t, err)
			var kinds []ports.ContradictionKind
			for _, f := range found {
				kinds = append(kinds, f.Problem)
			}
			require.Subset(t, kinds, c.want)
			require.Equal(t, len(c.want) == 0, len(kinds) == 0, "%v", found)
			learned, err := register.DestroyedFingerprints(t.Context(), 1, 10)
			require.Equal(t, name == "keys no list", err != nil, "%v", err)
			for _, l := range learned {
				require.Subset(t, destroyed.Keys[0].Fingerprints, l.Fingerprints, "a damaged text is no other fingerprint")
			}
		})
	}
}
