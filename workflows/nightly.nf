// The nightly evaluation as a process of Nextflow: nextflow run workflows/nightly.nf -resume
// Another corpus: --corpus data/other.npy. If a gate fails, so does the process, and what was said
// is in its .command.err. An incomplete run (exit 3) is tried again, which resumes it. A finished
// one is recognised in a second, and its verdict is the same.
params.corpus = 'data/today.npy'
params.workflow = 'workflows/nightly.yaml'

process EVALUATION {
    cpus 2
    memory '5 GB'
    errorStrategy { task.exitStatus == 3 ? 'retry' : 'terminate' }
    maxRetries 2
    publishDir launchDir, mode: 'copy'

    input:
    path corpus, stageAs: 'inputs/*'
    path workflow, stageAs: 'inputs/*'

    output:
    path 'evaluation.json'

    // The inputs only tell Nextflow what it depends on: jobs and history are where it was started.
    script:
    """
    found="\$PWD/evaluation.json"
    cd '${launchDir}'
    latentscale workflow run '${params.workflow}' -o corpora.corpus='${params.corpus}' \
        --quiet --json > "\$found"
    """
}

workflow {
    EVALUATION(file(params.corpus, checkIfExists: true), file(params.workflow, checkIfExists: true))
}
