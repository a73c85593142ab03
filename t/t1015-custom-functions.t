#!/bin/sh
test_description='Custom functions in the service: what they get, and what becomes of their answer'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'a function has an open handle of this instance' '
	cat >handle.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: custom, label: look}}
	custom: |
	  import os
	  def look(handle, **kwargs):
	      assert handle.attr_get("local-uri") == os.environ["FLUX_URI"]
	      size = int(handle.attr_get("size"))
	      return Action({"name": "submit", "label": "echo", "count": size})
	EOD
	flux ensemble run handle.yaml &&
	is 2/0/0/0 "$(counts_of handle echo)"
'

test_expect_success 'it has the environment and the directory of whoever loaded the document' '
	mkdir -p here/documents &&
	cat >here/documents/place.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: custom, label: look}}
	custom: |
	  import os
	  def look(ensemble, **kwargs):
	      with open("found", "w") as file:
	          print(os.environ["COLOUR"], ensemble["name"], ensemble["directory"], file=file)
	EOD
	(cd here && COLOUR=red flux ensemble run documents/place.yaml) &&
	is "red place $PWD/here/documents" "$(cat here/found)"
'

test_expect_success 'what it prints is in the log of the ensemble' '
	cat >prints.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: custom, label: look}}
	custom: |
	  def look(**kwargs):
	      print("looked around")
	      print("and saw nothing")
	EOD
	flux ensemble run prints.yaml &&
	flux ensemble log prints >log &&
	grep "custom-output  *look:" log &&
	grep "^  *looked around" log &&
	grep "^  *and saw nothing" log &&
	flux-ensemble run --member local --state-dir state prints.yaml &&
	flux-ensemble log --state-dir state prints | grep "looked around"
'

test_expect_success 'a rule that it returns is added and acts' '
	cat >adds.yaml <<-EOD &&
	jobs:
	  - {name: first, command: /bin/true}
	  - {name: second, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: custom, label: add}}
	  - {trigger: start, action: {name: submit, label: first}}
	custom: |
	  def add(**kwargs):
	      return [Rule({
	          "trigger": "metric",
	          "name": "count.first.success",
	          "when": 1,
	          "action": {"name": "submit", "label": "second"},
	      })]
	EOD
	flux ensemble run adds.yaml &&
	is 1/0/0/0 "$(counts_of adds second)"
'

test_expect_success 'plugins beside the document are found' '
	cat >beside.py <<-EOD &&
	from flux_ensemble import Action
	def again(metrics, **kwargs):
	    if metrics["count"]["echo"]["success"] == 1:
	        return Action(name="submit", label="echo")
	EOD
	cat >plugin.yaml <<-EOD &&
	plugins: [beside]
	jobs:
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: submit, label: echo}}
	  - trigger: job-success
	    action: {name: custom, label: again, repetitions: unlimited}
	EOD
	flux ensemble run plugin.yaml &&
	is 2/0/0/0 "$(counts_of plugin echo)"
'

test_expect_success 'what functions print is in the log of Flux' '
	cat >prints.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: custom, label: say}}
	custom: |
	  def say(**kwargs): print("a word")
	EOD
	flux ensemble run prints.yaml &&
	flux dmesg | grep "prints: say: a word"
'

test_done
