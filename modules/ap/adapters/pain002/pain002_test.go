package pain002_test

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/xmltree"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/pain002"
)

func file(version, body string) string {
	return `<?xml version="1.0" encoding="UTF-8"?><Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.002.001.` + version + `"><CstmrPmtStsRpt>
		<GrpHdr><MsgId>BANK-1</MsgId><CreDtTm>2025-03-22T08:00:00+01:00</CreDtTm></GrpHdr>` + body + `</CstmrPmtStsRpt></Document>`
}

const original = `<OrgnlGrpInfAndSts><OrgnlMsgId>R1</OrgnlMsgId><OrgnlMsgNmId>pain.001.001.09</OrgnlMsgNmId></OrgnlGrpInfAndSts>`

func TestRead(t *testing.T) {
	t.Parallel()
	ten := file("10", original+`<OrgnlPmtInfAndSts><OrgnlPmtInfId>R1-1</OrgnlPmtInfId>
		<TxInfAndSts><StsId>S1</StsId><OrgnlEndToEndId>R1-P1</OrgnlEndToEndId><TxSts>ACSC</TxSts><AccptncDtTm>2025-03-20T10:00:00Z</AccptncDtTm>
			<FctvIntrBkSttlmDt><Dt>2025-03-21</Dt></FctvIntrBkSttlmDt><AcctSvcrRef>BREF</AcctSvcrRef></TxInfAndSts>
		<TxInfAndSts><StsId>S2</StsId><OrgnlEndToEndId>R1-P2</OrgnlEndToEndId><TxSts>RJCT</TxSts><StsRsnInf><Rsn><Cd>AC04</Cd></Rsn><AddtlInf>closed
			account</AddtlInf><AddtlInf>ask</AddtlInf></StsRsnInf><OrgnlTxRef><ReqdExctnDt><Dt>2025-03-19</Dt></ReqdExctnDt></OrgnlTxRef></TxInfAndSts>
	</OrgnlPmtInfAndSts>`)
	r, err := pain002.Read(strings.NewReader("\xef\xbb\xbf" + ten))
	require.NoError(t, err)
	require.Len(t, r.SHA256, 64)
	require.Equal(t, []string{"BANK-1", "R1", "R1-1"}, []string{r.MessageID, r.RunID, r.Blocks[0].ID})
	require.False(t, r.Group.Whole())
	require.Equal(t, []pain002.Payment{
		{PaymentID: "R1-P1", Status: pain002.Status{Code: "ACSC", ExecutedOn: event.MustDate("2025-03-21"), Reference: "BREF"}},
		{PaymentID: "R1-P2", Status: pain002.Status{Code: "RJCT", ReasonCode: "AC04", Text: "closed account ask", ExecutedOn: event.MustDate("2025-03-19"), Reference: "S2"}},
	}, r.Blocks[0].Payments)

	three := file("03", `<OrgnlGrpInfAndSts><OrgnlMsgId>R1</OrgnlMsgId><GrpSts>PART</GrpSts></OrgnlGrpInfAndSts>
		<OrgnlPmtInfAndSts><OrgnlPmtInfId>R1-1</OrgnlPmtInfId><PmtInfSts>RJCT</PmtInfSts><StsRsnInf><Rsn><Prtry>no cover, sorry</Prtry></Rsn></StsRsnInf></OrgnlPmtInfAndSts>
		<OrgnlPmtInfAndSts><OrgnlPmtInfId>R1-2</OrgnlPmtInfId><PmtInfSts>ACSP</PmtInfSts>
			<TxInfAndSts><OrgnlEndToEndId>R1-P3</OrgnlEndToEndId><OrgnlTxRef><ReqdExctnDt>2025-03-18</ReqdExctnDt></OrgnlTxRef></TxInfAndSts></OrgnlPmtInfAndSts>`)
	r, err = pain002.Read(strings.NewReader(three))
	require.NoError(t, err)
	require.False(t, r.Group.Whole(), "parts differ")
	require.Equal(t, pain002.Status{Code: "RJCT", Text: "no cover, sorry", ExecutedOn: event.MustDate("2025-03-22"), Reference: "BANK-1"}, r.Blocks[0].Status)
	require.Equal(t, []pain002.Payment{
		{PaymentID: "R1-P3", Status: pain002.Status{Code: "ACSP", ExecutedOn: event.MustDate("2025-03-18"), Reference: "BANK-1"}},
	}, r.Blocks[1].Payments)
}

func TestRead_Refusals(t *testing.T) {
	t.Parallel()
	good := file("10", original)
	for name, c := range map[string]struct{ text, code string }{
		"empty":            {"", pain002.CodeMalformed},
		"no XML":           {"%PDF-1.7", pain002.CodeMalformed},
		"cut off":          {good[:len(good)-12], pain002.CodeMalformed},
		"DOCTYPE":          {strings.Replace(good, "<Document", `<!DOCTYPE d [<!ENTITY a "b">]><Document`, 1), pain002.CodeMalformed},
		"unknown entity":   {strings.Replace(good, "BANK-1", "&a;", 1), pain002.CodeMalformed},
		"second root":      {good + "<x/>", pain002.CodeMalformed},
		"nested too deep":  {file("10", original+strings.Repeat("<a>", xmltree.MaxDepth)+strings.Repeat("</a>", xmltree.MaxDepth)), pain002.CodeMalformed},
		"long text":        {file("10", original+"<a>"+strings.Repeat("x", xmltree.MaxText+1)+"</a>"), pain002.CodeTooLarge},
		"other encoding":   {strings.Replace(good, "UTF-8", "UTF-7", 1), pain002.CodeMalformed},
		"payment file":     {strings.ReplaceAll(good, "pain.002.001.10", "pain.001.001.09"), pain002.CodeUnsupported},
		"other version":    {strings.ReplaceAll(good, "pain.002.001.10", "pain.002.001.99"), pain002.CodeUnsupported},
		"other message":    {strings.ReplaceAll(good, "CstmrPmtStsRpt", "Other"), pain002.CodeUnsupported},
		"no message id":    {strings.Replace(good, "BANK-1", " ", 1), pain002.CodeIncomplete},
		"no original file": {file("10", ""), pain002.CodeIncomplete},
		"two files":        {file("10", original+original), pain002.CodeIncomplete},
	} {
		_, err := pain002.Read(strings.NewReader(c.text))
		require.Equal(t, c.code, fault.CodeOf(err), "%s: %v", name, err)
	}
	broken := errors.New("the disk is broken")
	_, err := pain002.Read(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
	_, isFault := fault.As(err)
	require.False(t, isFault)
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(file("10", original)))
	f.Add([]byte(file("03", original+`<OrgnlPmtInfAndSts><TxInfAndSts><OrgnlEndToEndId>R1-P3</OrgnlEndToEndId><TxSts>ACSC</TxSts></TxInfAndSts></OrgnlPmtInfAndSts>`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := pain002.Read(strings.NewReader(string(data)))
		if err != nil {
			require.NotEmpty(t, fault.CodeOf(err))
			return
		}
		require.NotEmpty(t, r.MessageID)
		require.NotEmpty(t, r.RunID)
	})
}
