package demo

import (
	"strings"
	"testing"
)

func TestRefusals(t *testing.T) {
	dates := "Today is 2026-03-14 (UTC). Valid dates are 2026-03-15 and later. " +
		"Call book_flight again with a valid date; if it is unclear which day the user means, ask."
	invalid := func(tool, faults, takes string) string {
		return tool + " did nothing, because its arguments are not valid. " + faults + " " + takes + " Correct them and call again."
	}
	booking := "Its arguments are: to, date."
	weather := "Its arguments are: location."
	shipment := "Its arguments are: destination, weight_kg."
	seconds := "Its arguments are: seconds."
	same := " Do not repeat this call unchanged: the answer will be the same."
	tests := []struct{ name, tool, arguments, want string }{
		{"today", "book_flight", `{"to":"Oslo","date":"2026-03-14"}`,
			"No flight was booked: the argument date is 2026-03-14, which is not in the future. " + dates},
		{"the past", "book_flight", `{"to":"Oslo","date":"1999-12-31"}`,
			"No flight was booked: the argument date is 1999-12-31, which is not in the future. " + dates},
		{"no such day", "book_flight", `{"to":"Oslo","date":"2026-02-30"}`,
			`No flight was booked: the argument date is "2026-02-30", which is not a day in the form YYYY-MM-DD. ` + dates},
		{"a word for a date", "book_flight", `{"to":"Oslo","date":"the day after tomorrow, or if that is sold out the next"}`,
			`No flight was booked: the argument date is "the day after tomorrow, or if that is so…", which is not a day in the form YYYY-MM-DD. ` + dates},
		{"no arguments", "book_flight", ``, invalid("book_flight", "The argument to is missing. It must be a city or airport, as a string. "+
			"The argument date is missing. It must be a day in the future, as a string in the form YYYY-MM-DD.", booking)},
		{"wrong types", "book_flight", `{"to":["Oslo"],"date":20260401}`, invalid("book_flight", "The argument to is an array. It must be a city or airport, as a string. "+
			"The argument date is a number. It must be a day in the future, as a string in the form YYYY-MM-DD.", booking)},
		{"another name", "book_flight", `{"destination":"Oslo","date":"2026-04-01"}`, invalid("book_flight",
			`The argument to is missing. It must be a city or airport, as a string. book_flight has no argument "destination".`, booking)},
		{"another case", "book_flight", `{"To":"Oslo","date":"2026-04-01"}`, invalid("book_flight",
			`The argument to is missing. It must be a city or airport, as a string. book_flight has no argument "To".`, booking)},
		{"no object", "book_flight", `[1]`, invalid("book_flight", "The arguments must be one JSON object with a member for each argument, not an array.", booking)},
		{"a string", "book_flight", `"Oslo"`, invalid("book_flight", "The arguments must be one JSON object with a member for each argument, not a string.", booking)},
		{"no location", "get_weather_data", `{}`, invalid("get_weather_data", "The argument location is missing. It must be the name of a city, as a string.", weather)},
		{"null location", "get_weather_data", `{"location":null}`, invalid("get_weather_data", "The argument location is missing. It must be the name of a city, as a string.", weather)},
		{"empty location", "get_weather_data", `{"location":"  "}`, invalid("get_weather_data", "The argument location is empty. It must be the name of a city, as a string.", weather)},
		{"long location", "get_weather_data", `{"location":"` + strings.Repeat("x", 201) + `"}`,
			invalid("get_weather_data", "The argument location has more than 200 characters. It must be the name of a city, as a string.", weather)},
		{"boolean location", "get_weather_data", `{"location":true}`, invalid("get_weather_data", "The argument location is a boolean. It must be the name of a city, as a string.", weather)},
		{"not in the primary ledger", "fetch_invoice", `{"invoice_id":"INV-1001"}`,
			`The primary ledger (main) has no invoice "INV-1001". It covers invoices INV-2000 and up, issued since 2026; other ledgers exist. ` +
				"Call list_ledgers, then call fetch_invoice with the ledger that covers this id. If none covers it, ask the user to check the id." + same},
		{"not in the other ledger", "fetch_invoice", `{"invoice_id":"INV-2001","ledger":"archive"}`,
			`The ledger archive has no invoice "INV-2001". It covers invoices INV-1000 to INV-1999, issued before 2026. ` +
				"Check the id with the user; if it is right, call list_ledgers, then fetch_invoice with the ledger that covers it." + same},
		{"no such ledger", "fetch_invoice", `{"invoice_id":"INV-2001","ledger":"Main"}`,
			`There is no ledger "Main", so no invoice was looked up. ` +
				"Call list_ledgers for the names of the ledgers, then fetch_invoice with the one that covers the invoice." + same},
		{"no invoice id", "fetch_invoice", `{"ledger":7}`, invalid("fetch_invoice", "The argument invoice_id is missing. It must be the id of an invoice, as a string such as INV-2001. "+
			"The argument ledger is a number. It must be the name of a ledger from list_ledgers, as a string, or be left out.", "Its arguments are: invoice_id, ledger.")},
		{"an argument too many", "list_ledgers", `{"all":true}`, invalid("list_ledgers", `list_ledgers has no argument "all".`, "It takes no arguments.")},
		{"no weight", "create_shipment", `{"destination":"Bergen","weight_kg":0}`, invalid("create_shipment", "The argument weight_kg is 0. It must be a number from 0.1 to 1000.", shipment)},
		{"weight as text", "create_shipment", `{"destination":"Bergen","weight_kg":"2 kg"}`, invalid("create_shipment", "The argument weight_kg is a string. It must be a number from 0.1 to 1000.", shipment)},
		{"weight beyond numbers", "create_shipment", `{"destination":"Bergen","weight_kg":1e999}`, invalid("create_shipment", "The argument weight_kg is a number. It must be a number from 0.1 to 1000.", shipment)},
		{"no seconds", "slow_report", `{}`, invalid("slow_report", "The argument seconds is missing. It must be a whole number from 1 to 120.", seconds)},
		{"too many seconds", "slow_report", `{"seconds":121}`, invalid("slow_report", "The argument seconds is 121. It must be a whole number from 1 to 120.", seconds)},
		{"zero seconds", "slow_report", `{"seconds":0}`, invalid("slow_report", "The argument seconds is 0. It must be a whole number from 1 to 120.", seconds)},
		{"half a second", "slow_report", `{"seconds":1.5}`, invalid("slow_report", "The argument seconds is 1.5. It must be a whole number from 1 to 120.", seconds)},
	}
	owner := map[string]string{"book_flight": "flights", "get_weather_data": "flights"}
	for _, era := range eras {
		for _, tt := range tests {
			t.Run(era+" "+tt.tool+" "+tt.name, func(t *testing.T) {
				server := owner[tt.tool]
				if server == "" {
					server = "ledger"
				}
				c := serve(t, t.Context(), server, era)
				defer c.close()
				r := c.call(tt.tool, tt.arguments)
				if !r.IsError || r.StructuredContent != nil || r.Content[0].Text != tt.want {
					t.Errorf("isError %v, structured %s, text\n%s\nwant\n%s", r.IsError, r.StructuredContent, r.Content[0].Text, tt.want)
				}
			})
		}
	}
}

func TestRefusedShipmentIsNotCounted(t *testing.T) {
	c := serve(t, t.Context(), "ledger", "modern")
	defer c.close()
	c.call("create_shipment", `{"destination":"Bergen"}`)
	r := c.call("create_shipment", `{"destination":"Bergen","weight_kg":1}`)
	if !strings.Contains(string(r.StructuredContent), "SHP-000001") {
		t.Errorf("got %s", r.StructuredContent)
	}
}
