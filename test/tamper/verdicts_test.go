package tamper

import (
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
)

// table is the verdict about a table of the database.
type table struct {
	name string // with its schema
	// target is a condition on the row that attacks edit and delete, and that an invented row is
	// a copy of; "": any row.
	target   string
	columns  []verdict
	deleted  verdict           // of a row
	invented verdict           // a copy of the row under another primary key
	edits    map[string]string // by column: the value that an attack writes, where the default of its type will not do
	invents  map[string]string // by column: the value in an invented row, where another value of the primary key will not do
}

// effect is what becomes of an edit.
type effect string

const (
	proof    effect = "proof"    // `backbone verify` finds it
	compared effect = "compared" // a rebuild heals it, and the comparison of two versions finds it
	harmless effect = "harmless" // nothing reads it that matters
	open     effect = "open"     // there is no verdict yet
)

// verdict is the verdict about columns, or about rows.
type verdict struct {
	effect     effect
	columns    string               // separated by blanks; "*" are all that have no other verdict, for an open table
	finds      []verify.FindingKind // of a proof: the first must be among the findings, and there must be none but these
	projection string               // of rows that are compared
	why        string
}

func proves(columns string, first verify.FindingKind, also ...verify.FindingKind) verdict {
	return verdict{effect: proof, columns: columns, finds: append([]verify.FindingKind{first}, also...)}
}

func isHarmless(columns, why string) verdict {
	return verdict{effect: harmless, columns: columns, why: why}
}

func isCompared(columns, projection string) verdict {
	return verdict{effect: compared, columns: columns, projection: projection}
}

func isOpen(columns, why string) verdict { return verdict{effect: open, columns: columns, why: why} }

func openTable(name, why string) table {
	return table{name: name, columns: []verdict{isOpen("*", why)}, deleted: isOpen("", why), invented: isOpen("", why)}
}

func harmlessTable(name, columns, why string) table {
	return table{name: name, columns: []verdict{isHarmless(columns, why)}, deleted: isHarmless("", why), invented: isHarmless("", why)}
}

// readModel is a table that a projection derives from the log.
// In the columns of constants a constraint allows one value only.
func readModel(name, projection, columns string, constants ...string) table {
	c := isCompared(columns, projection)
	all := []verdict{c}
	for _, name := range constants {
		all = append(all, isHarmless(name, oneValue))
	}
	return table{
		name: name, target: "version = 1", columns: all, deleted: c, invented: c,
		edits:   map[string]string{"version": "version + 100", "kind": "'credit_memo'", "side": "CASE side WHEN 'debit' THEN 'credit' ELSE 'debit' END"},
		invents: map[string]string{"version": "version"},
	}
}

const (
	deliveryOpen = "what was delivered to a subscription, and decided about it, is not compared with the log yet"
	keyLost      = "the person's values can no longer be opened, which readers see; verification does not open values"

	isAttempt   = "it counts failed attempts, for the pause until the next one and for people to read"
	oneValue    = "its constraint allows one value only"
	isMigration = "it says which migrations have run: a wrong row makes the next migration fail"
	isHeartbeat = "nodes write it every few seconds, and a wrong row shares work out unevenly until then"
	onRestart   = "it is a time for operators to read"
)

// chainFindings are all that an edit of one event can cause.
var chainFindings = []verify.FindingKind{
	verify.ChecksumMismatch, verify.SequenceGap, verify.TimeBackwards, verify.ForeignScope, verify.PayloadMissing, verify.PayloadMismatch, verify.EventUnreadable,
	verify.HiddenEvents, verify.StreamMismatch, verify.IntentMismatch, verify.SealedMalformed, verify.PersonalRowExtra,
}

// keyFindings are what rows of keys can show when a type has other rules or none.
var keyFindings = []verify.FindingKind{verify.KeyMismatch, verify.BusinessKeyMismatch, verify.NumberMismatch}

// receiptsDiffer stands for the finding of comparing the receipts in the export folder.
const receiptsDiffer verify.FindingKind = "receipts"

// verdicts has every table of the schemas backbone, keystore, ap and gl.
var verdicts = []table{
	{
		name: "backbone.events", target: "type = 'ap.invoice.posted'",
		columns: []verdict{
			proves("sequence partition_id", verify.SequenceGap, append(chainFindings, verify.LegalEntityMismatch)...),
			proves("occurred_at recorded_at schema_version effective_date caused_by_partition id caused_by type tenant_id legal_entity division region site custom_scopes actor_type "+
				"actor_id actor_name actor_details correlation_id intent_id stream_version stream_type stream_id tags pii source_system source_channel source_reference rules_evaluated payload_hash content_encoding checksum", verify.ChecksumMismatch, chainFindings...),
		},
		deleted:  proves("", verify.SequenceGap, chainFindings...),
		invented: proves("", verify.ChecksumMismatch, chainFindings...),
		edits: map[string]string{
			"sequence": "-5", "recorded_at": "recorded_at - interval '1 microsecond'", "pii": `'{"/data/name":"contact"}'`,
			"custom_scopes": `'{"a":"b"}'`, "actor_details": `'{"session_id":"s"}'`, "rules_evaluated": "'[]'", "partition_id": "1",
		},
		invents: map[string]string{
			"sequence": "(SELECT max(x.sequence) + 1 FROM backbone.events x WHERE x.partition_id = t.partition_id)", "id": "gen_random_uuid()", "stream_version": "stream_version + 9",
		},
	},
	{
		name: "backbone.event_payloads",
		columns: []verdict{
			proves("sequence partition_id", verify.PayloadMissing, verify.IntentMismatch),
			proves("salt payload", verify.PayloadMismatch, verify.IntentMismatch),
			proves("redactions", verify.RedactionUnrecorded),
		},
		deleted:  proves("", verify.PayloadMissing, verify.IntentMismatch),
		invented: isHarmless("", "a payload without an event is read by nothing"),
		target:   "sequence = 1",
		edits: map[string]string{
			"sequence": "-5", "partition_id": "1", "salt": "substr(sha256(salt), 1, 16)", "payload": `'{"data":{"x":1},"dimensions":{},"entity_refs":[]}'`,
			"redactions": `'[{"request":"00000000-0000-0000-0000-000000000001","pointers":["/data/name"],"at":"2026-03-01T00:00:00Z"}]'`,
		},
	},
	{
		name: "backbone.partition_heads",
		columns: []verdict{
			proves("partition_id", verify.LegalEntityMismatch),
			proves("genesis", verify.GenesisMismatch),
		},
		deleted:  proves("", verify.LegalEntityMismatch),
		invented: proves("", verify.LegalEntityMismatch),
		invents:  map[string]string{"partition_id": "partition_id + 1"},
	},
	{
		name: "backbone.event_keys",
		columns: []verdict{
			proves("sequence partition_id type_no key", verify.KeyMismatch),
		},
		deleted:  proves("", verify.KeyMismatch),
		invented: proves("", verify.KeyMismatch),
		edits:    map[string]string{"partition_id": "1"},
	},
	{
		name:     "backbone.business_keys",
		columns:  []verdict{proves("sequence partition_id event_id event_type key document", verify.BusinessKeyMismatch)},
		deleted:  proves("", verify.BusinessKeyMismatch),
		invented: proves("", verify.BusinessKeyMismatch),
		edits:    map[string]string{"partition_id": "1", "event_type": "'ap.vendor.registered'"},
		invents:  map[string]string{"event_type": "event_type"},
		target:   "event_type = 'ap.invoice.submitted'",
	},
	{
		name:     "backbone.stream_versions",
		columns:  []verdict{proves("version first_sequence last_sequence partition_id stream_type stream_id lifecycle metadata readable_from metadata_version", verify.StreamMismatch)},
		deleted:  proves("", verify.StreamMismatch),
		invented: proves("", verify.StreamMismatch),
		target:   "metadata IS NOT NULL",
		edits:    map[string]string{"partition_id": "1", "lifecycle": "'deleted'", "metadata": `'{"max_count":8}'`, "readable_from": "2"},
	},
	{
		name: "backbone.number_series", target: "series LIKE 'SL-%'",
		columns: []verdict{proves("next_number partition_id series unbound_through", verify.NumberMismatch)},
		deleted: proves("", verify.NumberMismatch), invented: proves("", verify.NumberMismatch),
		edits: map[string]string{"partition_id": "1"},
	},
	{
		name: "backbone.idempotency_keys",
		columns: []verdict{
			proves("first_sequence expires_at partition_id event_count intent_id key fingerprint", verify.RequestMismatch),
			isHarmless("bound", "its constraint allows only rows from before events bound them, which expire, to say so"),
		},
		deleted: proves("", verify.RequestMismatch), invented: proves("", verify.RequestMismatch),
		edits: map[string]string{"partition_id": "1"},
	},
	{
		name: "backbone.intents", target: "status = 'pending_approval'",
		columns: []verdict{proves("created_at updated_at first_sequence partition_id event_count revision effective_date id caused_by legal_entity type status actor_type actor_id actor_name "+
			"actor_details person_id roles correlation_id source_system source_channel source_reference plan_hash need approvals rules refusal payload last_sequence documents caused_by_partition", verify.IntentMismatch)},
		deleted: proves("", verify.IntentMismatch), invented: proves("", verify.IntentMismatch),
		edits: map[string]string{
			"partition_id": "1", "payload": `'{"amount":9}'`, "actor_details": `'{"session_id":"s"}'`, "need": `'[{"roles":["x"],"reason":"r","rule_id":"r"}]'`,
			"approvals": `'[{"person_id":"p","actor_id":"p","role":"r","decision":"approved","at":"2026-03-01T00:00:00Z"}]'`, "rules": "'[]'", "refusal": `'{"code":"x"}'`,
		},
	},
	{
		name: "backbone.intent_pii_subjects", columns: []verdict{
			proves("partition_id class intent_id subject_id", verify.PersonalRowMissing),
			isHarmless("paths", "the preview of an erasure counts them; the erasure destroys the key"),
		},
		deleted: proves("", verify.PersonalRowMissing), invented: isHarmless("", "an erasure looks there in vain"),
		edits: map[string]string{"partition_id": "1"},
	},
	{
		name: "backbone.event_pii_subjects", target: "subject_id LIKE 'contact:%'",
		columns: []verdict{
			proves("sequence subject_id class", verify.PersonalRowMissing, verify.PersonalRowExtra),
			proves("partition_id", verify.PersonalRowMissing),
			proves("paths", verify.PersonalRowExtra),
		},
		deleted: proves("", verify.PersonalRowMissing), invented: proves("", verify.PersonalRowExtra),
		edits: map[string]string{"partition_id": "1"},
	},
	{
		name: "backbone.pii_redactions",
		columns: []verdict{
			proves("sequence", verify.RedactionMismatch, verify.PayloadMismatch),
			proves("partition_id", verify.RedactionUnrecorded, verify.PayloadMismatch),
			proves("id", verify.RedactionUnrecorded, verify.RedactionUnannounced),
			proves("event_id old_payload_hash new_payload_hash requested_by approved_by", verify.RedactionMismatch, verify.RedactionUnapproved),
			proves("pointers", verify.RedactionUnapproved),
			isHarmless("redacted_at reason", "the event that announces the redaction has its time and reason"),
		},
		deleted:  proves("", verify.RedactionUnrecorded, verify.PayloadMismatch),
		invented: proves("", verify.RedactionUnannounced),
		edits:    map[string]string{"sequence": "1", "partition_id": "1"},
		invents:  map[string]string{"id": "gen_random_uuid()", "old_payload_hash": "new_payload_hash", "new_payload_hash": "old_payload_hash"},
	},
	{
		name: "backbone.redaction_requests",
		columns: []verdict{
			proves("requested_at approved_at sequence partition_id id pointers reason requested_by approved_by completed_at revision tenant_id event_id state scope ended_by end_reason preview results",
				verify.RedactionMismatch, verify.RedactionUnapproved),
			isHarmless("attempts last_error updated_at", isAttempt),
		},
		deleted: proves("", verify.RedactionMismatch, verify.RedactionUnapproved), invented: proves("", verify.RedactionMismatch),
		edits: map[string]string{"partition_id": "1", "state": "'rejected', ended_by = 'x'"},
	},
	{
		name: "backbone.installation",
		columns: []verdict{
			isHarmless("singleton", "it is always true"),
			proves("log_name", verify.GenesisMismatch, verify.ChecksumMismatch, verify.LegalEntityMismatch),
			proves("deployment", verify.LegalEntityMismatch),
			isHarmless("created_at", onRestart),
		},
		deleted:  isHarmless("", "no node starts and nothing is verified without it"),
		invented: isHarmless("", "there can be one row only"),
	},
	{
		name: "backbone.legal_entities", target: "code = 'DEMF'",
		columns: []verdict{
			proves("partition_id tenant_id code name time_zone", verify.LegalEntityMismatch, append(chainFindings, verify.GenesisMismatch)...),
			isHarmless("status settings", "nothing reads them"),
			isHarmless("created_at", onRestart),
		},
		deleted:  proves("", verify.LegalEntityMismatch),
		invented: proves("", verify.LegalEntityMismatch),
		edits:    map[string]string{"partition_id": "1"},
		invents:  map[string]string{"partition_id": "partition_id + 1", "code": "'FRMF'"},
	},
	{
		name: "backbone.principals",
		columns: []verdict{isHarmless("tenant_id principal_id person_id actor_type display_name role_label roles legal_entities token_hash development expires_at created_at",
			"nodes adopted the rows into the administrative log and read them no more")},
		deleted: isHarmless("", "as above"), invented: isHarmless("", "as above"),
	},
	{
		name: "backbone.event_types", target: "type = 'ap.invoice.submitted'",
		columns: []verdict{
			proves("type number", verify.KeyMismatch),
			isOpen("is_shared", "it can let a tenant take the name of a built-in type that no release has any more"),
		},
		deleted:  proves("", verify.KeyMismatch),
		invented: isHarmless("", "it keeps a name and a number from others, which no event has"),
		edits:    map[string]string{"number": "(SELECT max(x.number) + 1 FROM backbone.event_types x)"},
	},
	{
		name: "backbone.event_type_registry", target: "type = 'ap.invoice.submitted'",
		columns: []verdict{
			proves("type schema_version is_active document", verify.RegistrationMismatch, keyFindings...),
			isHarmless("module retention_class", "the document has them, and nothing reads these"),
			isHarmless("tenant_id", oneValue),
			isHarmless("registered_at registered_by", "people read it; a built-in version comes with the release"),
		},
		deleted: proves("", verify.RegistrationMismatch, keyFindings...), invented: proves("", verify.RegistrationMismatch, keyFindings...),
		edits:   map[string]string{"schema_version": "schema_version + 100", "document": "replace(document::text, '{', '{ ')::json"},
		invents: map[string]string{"type": "type", "schema_version": "schema_version + 100"},
	},
	{
		name: "backbone.event_type_registry", target: "type = '" + formerType + "'",
		columns: []verdict{
			proves("type schema_version is_active document registered_at registered_by", verify.RegistrationMismatch),
			isHarmless("module retention_class", "the document has them, and nothing reads these"),
			isHarmless("tenant_id", oneValue),
		},
		deleted: proves("", verify.RegistrationMismatch), invented: proves("", verify.RegistrationMismatch),
		edits: map[string]string{"document": "replace(document::text, '{', '{ ')::json"},
	},
	{
		name:    "backbone.event_type_generation",
		columns: []verdict{proves("last_change tenant_id", verify.SequenceGap)},
		deleted: proves("", verify.SequenceGap), invented: proves("", verify.SequenceGap),
		invents: map[string]string{"tenant_id": "'x'"},
	},
	{
		name: "backbone.event_type_history",
		columns: []verdict{
			proves("changed_at change schema_version type action actor reason digest checksum", verify.ChecksumMismatch, verify.RegistrationMismatch, verify.SequenceGap),
			proves("tenant_id", verify.SequenceGap, verify.RegistrationMismatch, verify.ChecksumMismatch),
		},
		deleted:  proves("", verify.SequenceGap, verify.RegistrationMismatch),
		invented: proves("", verify.ChecksumMismatch, verify.RegistrationMismatch, verify.SequenceGap),
		edits:    map[string]string{"action": "'registry.type.deprecated'"},
	},
	{
		name: "backbone.subscriptions",
		columns: []verdict{
			proves("uid tenant_id id subscriber_type subscriber_id definition status owner created_at", verify.SubscriptionMismatch),
			isHarmless("revision updated_at failures failure_code failed_at", "what a breaker has counted: at most deliveries pause, which operators see"),
		},
		deleted: proves("", verify.SubscriptionMismatch), invented: proves("", verify.SubscriptionMismatch),
		edits:   map[string]string{"status": "'paused'", "definition": `replace(definition::text, 'fuelled', 'fueled')::json`},
		invents: map[string]string{"uid": "gen_random_uuid()"},
	},
	harmlessTable("backbone.subscription_consumers", "subscription consumer active_until", "it shares messages out between consumers, until it expires"),
	openTable("backbone.subscription_cursors", deliveryOpen),
	openTable("backbone.subscription_decisions", deliveryOpen),
	openTable("backbone.subscription_messages", deliveryOpen),
	openTable("backbone.subscription_parked", deliveryOpen),
	harmlessTable("backbone.subscription_tenants", "tenant_id", "its lock keeps apart those that count the subscriptions of a tenant"),
	harmlessTable("backbone.webhook_attempts", "subscription event_id attempted_at next_at sequence partition_id attempt status duration_ms code", "people read it"),
	{
		name: "backbone.webhook_endpoints",
		columns: []verdict{
			proves("subscription tenant_id url secret_number previous_until disabled_at disabled_code revision created_at updated_at header_names headers personal_reason", verify.WebhookMismatch),
		},
		deleted: proves("", verify.WebhookMismatch), invented: proves("", verify.WebhookMismatch),
		edits: map[string]string{"previous_until": "now()", "disabled_at": "now()", "headers": "'x'"},
	},
	harmlessTable("backbone.webhook_hosts", "tenant_id host added_by added_at", "nodes adopted the rows into the administrative log and read them no more"),
	{
		name: "backbone.projections", target: "definition IS NOT NULL AND role = 'active'",
		columns: []verdict{
			proves("name definition", verify.ProjectionMismatch),
			isOpen("version code self_switching role status settings scope base", "the state of versions and the settings of operators are not in the log; a rebuild heals what readers see"),
			isHarmless("created_at changed_at revision changed_by", "people read it, and a change that meets another one is refused"),
		},
		deleted: proves("", verify.ProjectionMismatch), invented: proves("", verify.ProjectionMismatch),
		edits:   map[string]string{"name": "name || 'x'"},
		invents: map[string]string{"version": "version"},
	},
	{
		name: "backbone.access_log", target: "at < now() - interval '90 minutes'", // in an hour that is bound
		columns: []verdict{proves("at partition_id value_count id person_id principal_id kind operation legal_entity subject_id class reason request_id grant_id", verify.AccessMismatch)},
		deleted: proves("", verify.AccessMismatch), invented: proves("", verify.AccessMismatch),
	},
	harmlessTable("backbone.blind_index", "partition_id kind key_class hash subject_id class event_type path",
		"it decides which ids a search of officers shows; reports and erasures go by event_pii_subjects, and replaying the erasures builds it again"),
	harmlessTable("backbone.blind_index_positions", "sequence revision partition_id key", "it decides from where nodes build the index; as for its rows"),
	openTable("backbone.publisher_cursors", "a cursor beyond the end is found; one that skips events within the log is not, though consumers see a gap in the sequences"),
	{
		name: "backbone.projection_checkpoints", target: "version = 1",
		columns: []verdict{
			proves("sequence", verify.CheckpointMismatch),
			isHarmless("projection version partition_id", "the projection begins again and stops at the rows that are there, where operators see it; its rows are compared"),
			isHarmless("updated_at status error processed skipped failed attempts first_failed_at last_failed_at next_attempt_at last_event_at", "operators read it; at most the projection stops, or tries again"),
			isHarmless("term", "a holder whose term is not in the row rolls back, and the next one writes its own"),
			isHarmless("generation", "the next page of a report is refused, or not; its rows are compared"),
			isHarmless("redactions", "a snapshot of the projection is not used; values of redacted events are found when the rows are compared"),
		},
		deleted: isHarmless("", "as for its key"), invented: isHarmless("", "no version reads it"),
	},
	openTable("backbone.projection_snapshots", "a rebuild from the beginning of the log replaces what began with a wrong one; there is no check yet"),
	{
		name: "backbone.projection_rows", target: "version = 1",
		columns: []verdict{isCompared("sequence partition_id version projection key state", spend)},
		deleted: isCompared("", spend), invented: isCompared("", spend),
		edits:   map[string]string{"version": "version + 100"},
		invents: map[string]string{"version": "version", "projection": "projection"},
	},
	openTable("backbone.dead_letters", "nothing compares them with the log yet"),
	openTable("backbone.entity_snapshots", "reads trust a state that is stored"),
	openTable("backbone.stream_snapshots", "reads trust a state that is stored"),
	{
		name:    "backbone.leases",
		columns: []verdict{isHarmless("term taken_at expires_at partition_id name holder", "a holder whose term is not in the row rolls back, and a lease that expires is taken again: an edit delays work")},
		deleted: isHarmless("", "the next holder inserts it again"), invented: isHarmless("", "it expires"),
	},
	{
		name: "backbone.nodes", columns: []verdict{isHarmless("seen_at node", isHeartbeat)},
		deleted: isHarmless("", isHeartbeat), invented: isHarmless("", isHeartbeat),
	},
	{
		name: "backbone.work_nodes", columns: []verdict{isHarmless("seen_at work node", isHeartbeat)},
		deleted: isHarmless("", isHeartbeat), invented: isHarmless("", isHeartbeat),
	},
	migrations("backbone.migrations_ap"), migrations("backbone.migrations_backbone"), migrations("backbone.migrations_gl"), migrations("keystore.migrations"),
	migrationLock("backbone.migration_lock"), migrationLock("keystore.migration_lock"),

	readModel("ap.documents", ap.OpenItems, "sequence partition_id invoice_date due_date document_id vendor_id kind invoice_number currency dimensions version"),
	readModel("ap.document_entries", ap.OpenItems, "sequence partition_id effective_date event_id document_id amount functional_amount functional_currency version", "action"),
	readModel("ap.document_holds", ap.OpenItems, "sequence partition_id effective_date released document_id hold_id kind blocks version"),
	readModel("ap.ledgers", ap.OpenItems, "sequence partition_id functional_currency version"),
	readModel("ap.vendors", ap.Vendors, "sequence partition_id effective_date natural_person event_id vendor_id country subject name version", "status"),
	readModel("ap.vendor_contacts", ap.Vendors, "sequence partition_id effective_date removed vendor_id contact_id subject name email phone job_function version"),
	readModel("gl.accounts", gl.ProjectionLedger, "sequence partition_id code name type version"),
	readModel("gl.journal_lines", gl.ProjectionLedger, "sequence partition_id line_number effective_date rate_date side account amount currency functional_amount functional_currency rate description tax_code dimensions version"),
	readModel("gl.journal_reversals", gl.ProjectionLedger, "sequence partition_id journal_id reversed_by version"),
	readModel("gl.journals", gl.ProjectionLedger, "sequence recorded_at partition_id effective_date event_id source_event_id journal_id reverses_journal_id journal_number journal_type description functional_currency "+
		"fiscal_year period source_module version"),
	readModel("gl.ledgers", gl.ProjectionLedger, "sequence partition_id functional_currency version"),

	{
		name: "keystore.data_subjects", target: "state = 'destroyed'",
		columns: []verdict{
			proves("partition_id subject_id class tenant_id state active_version", verify.KeyStoreMismatch, receiptsDiffer),
			isHarmless("key_ref created_at destroyed_at", "the receipt names the key and the time"),
		},
		deleted: proves("", verify.KeyStoreMismatch, receiptsDiffer), invented: proves("", verify.KeyStoreMismatch),
		edits: map[string]string{
			"partition_id": "1", "class": "class, subject_id = 'contact:C-9'",
			"state": "'active', active_version = 1, destroyed_at = NULL", "active_version": "1, state = 'active', destroyed_at = NULL",
		},
		invents: map[string]string{"class": "class", "key_ref": "gen_random_uuid()"},
	},
	{
		name: "keystore.data_subjects", target: "state = 'active'",
		columns: []verdict{
			proves("tenant_id state active_version", verify.KeyStoreMismatch),
			isOpen("partition_id subject_id class key_ref", keyLost),
			isHarmless("created_at destroyed_at", "people read it"),
		},
		deleted: isOpen("", keyLost), invented: proves("", verify.KeyStoreMismatch),
		edits:   map[string]string{"state": "'destroyed', active_version = 0, destroyed_at = now()"},
		invents: map[string]string{"class": "class", "key_ref": "gen_random_uuid()"},
	},
	{
		name: "keystore.data_subject_keys",
		columns: []verdict{
			proves("partition_id subject_id class version tenant_id", verify.KeyStoreMismatch),
			isOpen("kek_epoch wrapped fingerprint", keyLost),
			isHarmless("created_at", "people read it"),
		},
		deleted: proves("", verify.KeyStoreMismatch), invented: isOpen("", "nothing is sealed with it; an erasure destroys it too"),
		edits: map[string]string{"partition_id": "1", "class": "(class + 1) % 3"},
	},
	{
		name: "keystore.erasure_receipts",
		columns: []verdict{
			proves("number request_id tenant_id note", verify.ErasureMismatch, verify.KeyStoreMismatch, receiptsDiffer),
			isOpen("keys", "a key that is taken out is found; nothing compares the fingerprints with the signed note"),
			isOpen("generation", "a higher one is found, a lower one is not"),
			isHarmless("destroyed_at", "the signed note has the time"),
			isHarmless("exported", "a receipt is exported again, or is missing from the export folder, which is compared"),
		},
		deleted:  proves("", verify.ErasureMismatch, verify.KeyStoreMismatch, receiptsDiffer),
		invented: isOpen("", "one that says it was exported is found, one that seems to wait for its export is not"),
	},
	{
		name: "keystore.generation",
		columns: []verdict{
			isHarmless("singleton", oneValue),
			proves("generation", verify.KeyStoreMismatch),
		},
		deleted:  isHarmless("", "no key is destroyed without it"),
		invented: isHarmless("", "there can be one row only"),
		edits:    map[string]string{"generation": "0"},
	},
	{
		name:    "keystore.legal_holds",
		columns: []verdict{proves("hold_id placed_at released_at until partition_id tenant_id subject_id reason placed_by released_by", verify.HoldMismatch)},
		deleted: proves("", verify.HoldMismatch), invented: proves("", verify.HoldMismatch),
		edits: map[string]string{"released_at": "now(), released_by = 'x'", "released_by": "'x', released_at = now()"},
	},
	openTable("keystore.nodes", "an erasure waits a minute for nodes that lag; a wrong row shortens it"),
	{
		name: "keystore.pii_deletion_approvals",
		columns: []verdict{
			proves("request_id revision requester_person approver_person scope", verify.ErasureMismatch),
			isHarmless("approved_at", "the request's copy is bound"),
			isOpen("stored_at", "the time by the database's clock is nowhere else"),
		},
		deleted: proves("", verify.ErasureMismatch), invented: proves("", verify.ErasureMismatch),
		invents: map[string]string{"request_id": "request_id"},
	},
	{
		name: "keystore.pii_deletion_log", target: "state = 'completed'",
		columns: []verdict{
			proves("request_id requested_at approved_at destroyed_at evicted_at completed_at generation receipt due_on revision all_entities tenant_id subject_id basis reason requester_person "+
				"approver_person ended_by end_reason state partitions scope preview classes results", verify.ErasureMismatch, verify.KeyStoreMismatch),
			proves("erased_classes", verify.KeyStoreMismatch),
			isHarmless("attempts last_error updated_at", isAttempt),
		},
		deleted: proves("", verify.ErasureMismatch, verify.KeyStoreMismatch), invented: proves("", verify.ErasureMismatch, verify.KeyStoreMismatch),
		edits: map[string]string{"state": "'verified'", "partitions": "partitions || 1", "erased_classes": "'{0}'", "classes": `'[{"class":0,"erased":true}]'`},
	},
	{
		name: "keystore.pii_deletion_steps", target: "state = 'approved'",
		columns: []verdict{
			proves("request_id revision state person", verify.ErasureMismatch),
			isHarmless("done_at attempts", "people read it; the event has its own time"),
		},
		deleted: proves("", verify.ErasureMismatch), invented: proves("", verify.ErasureMismatch),
		edits:   map[string]string{"revision": "revision + 100"},
		invents: map[string]string{"request_id": "request_id", "revision": "revision + 100"},
	},
	{
		name: "keystore.subject_fences", target: "partition_id = (SELECT l.partition_id FROM backbone.legal_entities l WHERE l.code = '_ADMIN')",
		columns: []verdict{
			proves("partition_id subject_id class request_id lifted_at", verify.KeyStoreMismatch),
			isHarmless("fenced_at", "people read it"),
		},
		deleted:  proves("", verify.KeyStoreMismatch),
		invented: proves("", verify.KeyStoreMismatch),
		edits:    map[string]string{"partition_id": "1", "class": "class, subject_id = 'contact:C-9'", "lifted_at": "now()"},
	},
	{
		name: "keystore.tenant_keks",
		columns: []verdict{
			proves("tenant_id epoch kms_key_id state", verify.KeyEpochMismatch),
			isHarmless("created_at activated_at drained_at deleting_at deleted_at", "people read it; the events have the times"),
		},
		deleted: proves("", verify.KeyEpochMismatch), invented: proves("", verify.KeyEpochMismatch),
		edits:   map[string]string{"state": "'draining'"},
		invents: map[string]string{"state": "'pending'"},
	},
	openTable("keystore.tenant_secrets", "a wrong one does not unwrap, which its users see; nothing compares which there are"),
}

func migrations(name string) table {
	return table{
		name: name, columns: []verdict{isHarmless("id version_id is_applied tstamp", isMigration)},
		deleted: isHarmless("", isMigration), invented: isHarmless("", isMigration),
	}
}

func migrationLock(name string) table {
	const why = "it keeps two migrations apart, and expires"
	return table{
		name: name, columns: []verdict{isHarmless("lock_id locked locked_at locked_by lease_expires_at updated_at", why)},
		deleted: isHarmless("", why), invented: isHarmless("", why),
	}
}
